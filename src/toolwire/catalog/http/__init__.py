"""Talks to the API of a catalogue: reads the list, sends orders, and reports what is known about their outcome."""
