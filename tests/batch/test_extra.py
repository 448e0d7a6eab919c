"""`toolwire.batch` is an extra: nothing of it is loaded before it is used, and without it an error says so."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process
WITHOUT = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "dbos" else real(name, *rest)
"""


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_importing_toolwire_loads_none_of_it():
    """Importing `toolwire.batch` loads nothing heavy either: its parts are loaded when they are used."""
    heavy = {"dbos", "sqlalchemy", "psycopg"}
    code = "import toolwire, toolwire.batch, sys; print(*{each.partition('.')[0] for each in sys.modules})"
    assert not heavy & set(python(code).stdout.split())


def test_without_the_extra_it_says_what_to_install():
    """The import fails with the command that installs the extra."""
    done = python(f"{WITHOUT}\nimport toolwire\nfrom toolwire.batch import Batch")
    assert "pip install 'toolwire[batch]'" in done.stderr
    assert done.returncode == 1


def test_the_command_says_so_too():
    """The command fails with the same line, without a traceback."""
    done = python(
        f"{WITHOUT}\nfrom toolwire.cli.main import app\nsys.argv = ['toolwire', 'batch', 'show']\napp()"
    )
    assert "pip install 'toolwire[batch]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
