"""Repairs JSON schemas as APIs write them."""
