"""Makes tools of the entries of a catalogue: names, selection, pins, a cache for the next start."""
