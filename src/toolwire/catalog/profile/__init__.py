"""Profiles: all that is particular to one catalogue's API, as data."""
