"""Talks to the API of a catalogue: reads the list, sends orders, and says what is known of an order afterwards."""
