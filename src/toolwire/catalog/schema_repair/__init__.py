"""JSON schemas as APIs write them, repaired so that they hold."""
