"""The Containerfile, as far as it can be checked without an engine that builds it."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.container import command_lines, instructions, values
from toolwire.cli.main import app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_instruction_is_one():
    """A typing mistake would be found only by the engine."""
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in instructions()} <= known
    assert instructions()[0][0] == "FROM"


def test_what_it_copies_is_in_the_repository_and_the_sdist():
    """It can be built from a clone, and from an unpacked sdist."""
    shipped = {*PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "pyproject.toml"}
    copied = [value.split()[:-1] for value in values("COPY") if not value.startswith("--from=")]
    assert copied
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert name in shipped, f"{name} is not in the sdist"


def test_what_it_copies_is_enough_to_build():
    """The build needs what pyproject.toml names."""
    copied = {name for value in values("COPY") for name in value.split()[:-1]}
    project = PROJECT["project"]
    assert {"pyproject.toml", "src", project["readme"], *project["license-files"]} <= copied


def test_the_extras_that_it_installs_exist():
    """A name that is none is only a warning of pip."""
    (named,) = re.findall(r"'\.\[([\w,]+)\]'", " ".join(values("RUN")))
    assert set(named.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_its_python_is_a_supported_one():
    """Of both stages, and the same: the environment is copied from one to the other."""
    versions = {re.findall(r"python:(\d+\.\d+)-slim", value)[0] for value in values("FROM")}
    (version,) = versions
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_its_entry_point_is_the_command():
    """And it is found: on PATH, in the folder into which it was installed and copied."""
    (entry,) = json.loads(values("ENTRYPOINT")[0])
    assert entry in PROJECT["project"]["scripts"]
    (made,) = re.findall(r"python -m venv (\S+)", " ".join(values("RUN")))
    assert f"--from=build {made} {made}" in values("COPY")
    assert f"PATH={made}/bin:$PATH" in " ".join(values("ENV"))


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_the_command_line_is_accepted(words):
    """Every option exists: with --help behind it, the command shows its help and does nothing."""
    shown = CliRunner().invoke(app, [*words, *([] if "--help" in words else ["--help"])])
    assert shown.exit_code == 0, shown.output


def test_a_wrong_command_line_is_noticed():
    """The check above can fail."""
    assert CliRunner().invoke(app, ["serve", "app.py", "--htpp", "--help"]).exit_code != 0
