"""`python -m toolwire`."""

from toolwire.cli.main import app

app()
