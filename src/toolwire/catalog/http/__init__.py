"""Talking to a catalogue's API: the list, the orders, and what is known of an order afterwards."""
