"""Profiles: everything that is specific to one catalogue's API, as data."""
