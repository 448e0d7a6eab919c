"""Where money is booked: who may spend how much, and what became of every call."""
