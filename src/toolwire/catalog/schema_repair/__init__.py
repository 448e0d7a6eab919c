"""Repairs the JSON schemas of APIs."""
