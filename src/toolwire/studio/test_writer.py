"""Turns a run into a pytest."""


def write_test(timeline: object, target: str) -> str:
    """Placeholder while the real one is written."""
    raise ValueError("not yet")
