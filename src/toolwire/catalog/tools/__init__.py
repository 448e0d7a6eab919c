"""Turns the entries of a catalogue into tools: names, selection, pins, a cache for the next start."""
