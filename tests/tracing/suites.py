"""Runs test suites that tracing libraries publish in their sdists, on the official package and in alias mode.

An sdist is downloaded from the package index that pip is set up for, checked against its hash, and unpacked in
`build/tracing-suites`. Tests that need a model or a network are not among the files that are named here.
"""

import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from pip._internal.models.index import PyPI

from toolwire.testing.environment import claude_environment

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "tracing-suites"
NO_MODEL = "http://127.0.0.1:9"
"""Nothing listens there. A test that starts a CLI against expectation gets no answer, and reaches nobody."""


@dataclass(frozen=True)
class Suite:
    """The tests of one library, and those that fail in alias mode, each with the reason."""

    project: str
    version: str
    sha256: str
    tests: tuple[str, ...]
    explained: dict[str, str] = field(default_factory=dict)
    in_place: bool = False
    """The tests are inside the package: it is imported from the sdist, which has the installed version."""

    @property
    def name(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}"


READS_PRIVATE = (
    "closes the private streams of the official client itself (`client._query`), which toolwire has not"
)
SUITES = [
    Suite(
        "otel-instrumentation-claude-agent-sdk",
        "0.0.6",
        "533351efe3a36fcd51dde504d9d3072dae4dcf0a781dc34adb8965c500ebf2ad",
        ("tests/unit",),  # tests/integration talks to a model
    ),
    Suite(
        "langsmith",
        "0.14.17",
        "53efa2db8293d0a8d60efebe0945c595b635873774b302066ed0a746ddf87562",
        (
            "tests/unit_tests/wrappers/test_claude_agent_sdk_hooks.py",
            "tests/unit_tests/wrappers/test_integration_addressing.py",
        ),
    ),
    Suite(
        "logfire",
        "5.2.0",
        "5fb9ddda303759766e86f5704a1ae96f3a0072906d52e21fbaad2e3c3b03f823",
        ("tests/otel_integrations/test_claude_agent_sdk.py",),
        {
            f"tests.otel_integrations.test_claude_agent_sdk::{name}": READS_PRIVATE
            for name in (
                "test_basic_conversation_cassette",
                "test_tool_use_conversation_cassette[0]",
                "test_tool_use_conversation_cassette[0.05]",
            )
        },
    ),
    Suite(
        "posthog",
        "7.79.0",
        "a06b174a0e81c2360436561dd0de0ab99abacd969c5040fce34e5cb7d8e5fa76",
        ("posthog/test/ai/claude_agent_sdk",),
        in_place=True,
    ),
]


def fetch(suite: Suite) -> Path:
    """Return the folder with the unpacked sdist; download it if it is not there."""
    folder = FOLDER / suite.name
    if not folder.exists():
        data = _download(suite)
        if (found := hashlib.sha256(data).hexdigest()) != suite.sha256:
            raise ValueError(f"the sdist of {suite.name} has the hash {found}, not {suite.sha256}")
        part = FOLDER / f"{suite.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        archive = part / "sdist.tar.gz"
        archive.write_bytes(data)
        with tarfile.open(archive) as opened:
            opened.extractall(part, filter="data")
        (part / suite.name).rename(folder)
        shutil.rmtree(part)
    return folder


def _download(suite: Suite) -> bytes:
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or told or PyPI.simple_url
    page = f"{index.rstrip('/')}/{suite.project}/"
    with urllib.request.urlopen(page, timeout=120) as response:  # noqa: S310 - pip's own index
        text = response.read().decode()
    for link in re.findall(r'href="([^"]+)"', text):
        url = urllib.parse.urljoin(page, html.unescape(link)).partition("#")[0]
        if url.endswith(f"/{suite.name}.tar.gz"):
            with urllib.request.urlopen(url, timeout=600) as response:  # noqa: S310
                return response.read()
    raise LookupError(f"the package index has no sdist {suite.name}.tar.gz")


def run(suite: Suite, home: Path, *, alias: bool) -> dict[str, str]:
    """Run the tests and return their outcomes by name: passed, failed or skipped.

    Nothing of the caller's environment is passed on, and only loopback can be reached.
    """
    report = home / "report.xml"
    environment = claude_environment(NO_MODEL, home)
    environment |= {"PYTHONHASHSEED": "0", "PYTHONPATH": str(HERE), "CI": "1", "NO_COLOR": "1"}
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "loopback"),
        *("-o", "addopts=", "-o", "filterwarnings=", "--timeout", "60", f"--junit-xml={report}"),
        *(["--toolwire-as-official"] if alias else []),
        *suite.tests,
    ]
    folder = fetch(suite)
    if suite.in_place:
        environment["PYTHONPATH"] += f"{os.pathsep}{folder}"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode not in {0, 1}:  # 1: some tests failed
        raise RuntimeError(
            f"the suite of {suite.name} did not run:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return {
        f"{case.get('classname')}::{case.get('name')}": _outcome(case)
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - written by our own pytest
    }


def _outcome(case: ET.Element) -> str:
    kinds = {each.tag for each in case}
    return "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
