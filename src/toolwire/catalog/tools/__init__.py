"""From the entries of a catalogue to tools: named, chosen, compared with what was agreed to, kept for next time."""
