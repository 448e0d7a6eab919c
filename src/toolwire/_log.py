"""The tree of loggers below `toolwire`. Silent unless the application sets up logging, as a library should be."""

import logging

logging.getLogger("toolwire").addHandler(logging.NullHandler())


def logger_for(name: str) -> logging.Logger:
    """The logger `toolwire.<name>`."""
    return logging.getLogger(f"toolwire.{name}")
