"""Runs programs to their end."""

import subprocess
import sys


def run_program(argv, *, stdin="", timeout=100, **options):
    """Run a program with this text as its input. Return its exit code, and its output as text."""
    return subprocess.run(
        list(map(str, argv)),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )


def run_python(*arguments, **options):
    """Run Python with these arguments, such as `-m toolwire`."""
    return run_program([sys.executable, *arguments], **options)
