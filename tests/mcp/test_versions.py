"""Which versions of `mcp` are accepted, and the errors for others."""

import subprocess
import sys
import tomllib
from pathlib import Path

import anyio
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import toolwire
from toolwire.errors import NotSupportedError
from toolwire.mcp import versions
from toolwire.mcp.foreign import as_server
from toolwire.mcp.serve import start

PROJECT = Path(toolwire.__file__).parents[2] / "pyproject.toml"


assert (
    start
)  # imported here with the installed version: if a test imported it with another, later tests would fail


def dotted(version):
    return ".".join(map(str, version))


def test_the_bounds_are_those_of_the_project():
    """The requirement in pyproject.toml is what the code accepts, and the bounds are versions that were tested."""
    demanded = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    (mcp,) = [each for each in map(Requirement, demanded) if each.name == "mcp"]
    assert mcp.specifier == SpecifierSet(f">={dotted(versions.OLDEST)},<{versions.NEXT[0]}")
    for each in (versions.OLDEST, versions.SERVING, versions.SERVING_HTTP):
        assert dotted(each) in Requirement(versions.TESTED).specifier


def test_what_is_installed_can_be_used_for_everything():
    """The tests run with a version that can serve; `make mcps` runs others."""
    if versions.installed() < versions.SERVING:
        pytest.skip("mcp 1.x does not serve")
    versions.check_mcp("serving", versions.SERVING)


@pytest.mark.parametrize("found", [(0, 0), (1, 22), (3, 0)])
def test_a_version_that_is_not_known_is_refused_at_first_use(monkeypatch, found):
    """The error says what was attempted, which versions that needs, and how to install one."""
    monkeypatch.setattr(versions, "installed", lambda: found)
    with pytest.raises(
        NotSupportedError, match=r"of another library needs mcp>=1\.23,<3.*pip install 'mcp>=1"
    ):
        as_server(object())


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ((1, 30), "serve_stdio serve_http http_app as_mcp_server"),
        ((2, 1), "serve_http http_app"),
        ((3, 0), "serve_stdio serve_http http_app as_mcp_server"),
    ],
)
def test_serving_says_which_version_it_needs(monkeypatch, found, refused):
    """The error comes when a function is called, since its name can be imported with any version."""
    if found[0] == 2 and versions.installed()[0] < 2:
        pytest.skip("mcp 1.x cannot be taken for 2.x")
    monkeypatch.setattr(versions, "installed", lambda: found)
    for name in refused.split():
        function = getattr(toolwire, name)
        with pytest.raises(NotSupportedError, match=r"serving.* needs mcp>=2\.[02],<3"):
            if name in {"serve_stdio", "serve_http"}:
                anyio.run(function, toolwire.ToolServer("s"))
            else:
                function(toolwire.ToolServer("s"))


PROGRAM = """
from toolwire import *
import asyncio, toolwire, sys
from toolwire import testing

calc = toolwire.ToolServer("calc")

@calc.tool
def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with testing.connect(calc) as client:
        print((await client.call("add", a=1, b=2)).text)
    try:
        await toolwire.serve_stdio(calc)
    except toolwire.NotSupportedError as error:
        print(error)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("version", ["1.20.0", "3.0.0"])
def test_tools_of_ours_need_no_mcp_that_is_known(tmp_path, version):
    """With an unknown package called `mcp`, tools work; only serving is refused, with our own error."""
    package, metadata = tmp_path / "mcp", tmp_path / f"mcp-{version}.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").write_text("")
    (package / "types.py").write_text("import pydantic\nclass ToolAnnotations(pydantic.BaseModel): ...")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mcp\nVersion: {version}\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    result, refused = done.stdout.splitlines() or (done.stderr, "")
    assert result == "3"
    assert refused.startswith(f"serving needs mcp>=2.0,<3, but version {version} is installed")


def test_a_server_of_the_official_form_cannot_be_run_as_one_of_an_older_mcp(monkeypatch):
    """It then lacks the attributes of a server of `mcp`, and the error says which version they need."""
    monkeypatch.setattr(versions, "installed", lambda: (1, 30))
    server = toolwire.create_sdk_mcp_server("ours")["instance"]
    assert not hasattr(server, "run")
    with pytest.raises(AttributeError, match=r"serving needs mcp>=2\.0"):
        _ = server.create_initialization_options
