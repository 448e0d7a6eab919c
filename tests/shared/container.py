"""Reads the Containerfile, and the command lines that the documents run in it, for tests and for `make dist`."""

import json
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text()


def instructions():
    """Return the Containerfile's instructions as (name, arguments), with continued lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def values(name):
    """Return the arguments of all instructions with this name."""
    return [value for each, value in instructions() if each == name]


def command_lines():
    """Return the command lines that the documents run in the container and as a service, without `toolwire`."""
    in_container = re.findall(
        r"^\$ podman run (?!.*--entrypoint).*? toolwire (.+?)(?:\s+#.*)?$", DEPLOYMENT, re.MULTILINE
    )
    as_service = re.findall(r"^ExecStart=\S*/toolwire (.+)$", DEPLOYMENT, re.MULTILINE)
    assert (len(in_container), len(as_service)) == (2, 1)
    return [shlex.split(each) for each in in_container + as_service] + [json.loads(values("CMD")[0])]
