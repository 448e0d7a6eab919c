"""The Containerfile, as far as it can be checked without building it."""

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
    """Only known instructions are used: an engine alone would find a typing mistake."""
    known = {
        "FROM",
        "ARG",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert {name for name, _ in instructions()} <= known
    assert instructions()[0][0] == "FROM"


def test_what_it_copies_is_in_the_repository_and_the_sdist():
    """Every copied file is in the repository and in the sdist, so that the image can be built from both."""
    shipped = {*PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "pyproject.toml"}
    copied = [value.split()[:-1] for value in values("COPY") if not value.startswith("--from=")]
    assert copied
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert {name, name.partition("/")[0]} & shipped, f"{name} is not in the sdist"


def test_what_it_copies_is_enough_to_build():
    """The files that pyproject.toml names, and the build hook, are copied."""
    copied = {name for value in values("COPY") for name in value.split()[:-1]}
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]
    assert {"pyproject.toml", "src", hook, "README.md", *PROJECT["project"]["license-files"]} <= copied


def test_what_it_copies_is_given_to_the_engine():
    """.dockerignore lets through exactly what is copied: no environment, no caches, nothing private."""
    lines = [each for each in (ROOT / ".dockerignore").read_text().splitlines() if not each.startswith("#")]
    copied = {name for value in values("COPY") if "--from" not in value for name in value.split()[:-1]}
    assert lines[0] == "*"
    assert {each.removeprefix("!") for each in lines if each.startswith("!")} == copied


def test_the_extras_that_it_installs_exist():
    """pip only warns about an unknown extra. Those that batch workers and programs need are installed."""
    (named,) = re.findall(r"^EXTRAS=([\w,]+)$", "\n".join(values("ARG")), re.MULTILINE)
    assert '".[$EXTRAS]"' in " ".join(values("RUN"))
    assert (
        {"cli", "batch", "postgres"}
        <= set(named.split(","))
        <= PROJECT["project"]["optional-dependencies"].keys()
    )


def test_its_user_is_a_number():
    """Kubernetes' runAsNonRoot cannot tell whether a name is root."""
    (user,) = values("USER")
    assert f"--uid {user} " in " ".join(values("RUN"))
    assert int(user) > 0


def test_its_python_is_a_supported_one():
    """Both stages have the same supported Python: the environment is copied from one to the other."""
    versions = {re.findall(r"python:(\d+\.\d+)-slim", value)[0] for value in values("FROM")}
    (version,) = versions
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_its_entry_point_is_the_command():
    """The entry point is our command, in a folder that is copied from the build stage and on PATH."""
    (entry,) = json.loads(values("ENTRYPOINT")[0])
    assert entry in PROJECT["project"]["scripts"]
    (made,) = re.findall(r"python -m venv --without-pip (\S+)", " ".join(values("RUN")))
    assert f"--from=build {made} {made}" in values("COPY")
    assert f"PATH={made}/bin:$PATH" in " ".join(values("ENV"))


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_the_command_line_is_accepted(words):
    """Every option exists: with --help at the end, the command shows its help and does nothing else."""
    shown = CliRunner().invoke(app, [*words, *([] if "--help" in words else ["--help"])])
    assert shown.exit_code == 0, shown.output


def test_a_wrong_command_line_is_noticed():
    """An unknown option fails, so the test above can fail."""
    assert CliRunner().invoke(app, ["serve", "app.py", "--htpp", "--help"]).exit_code != 0
