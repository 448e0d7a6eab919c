"""`ClaudeEnvironment`: nothing is inherited, the model is on loopback, and the folders are removed at the end."""

import asyncio
import logging
import os
import shutil
from pathlib import Path

import pytest

from toolwire.testing import ClaudeEnvironment, ScriptedModel, claude_environment

URL = "http://127.0.0.1:1234"


def test_nothing_is_inherited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The CLI gets no variable of this process's environment."""
    inherited = {
        "ANTHROPIC_API_KEY": "sk-real",
        "ANTHROPIC_AUTH_TOKEN": "real",
        "ANTHROPIC_BASE_URL": "https://api.example.com",
        "CLAUDE_CODE_OAUTH_TOKEN": "real",
        "CLAUDECODE": "1",
        "AWS_PROFILE": "real",
        "GOOGLE_APPLICATION_CREDENTIALS": "real",
        "HTTPS_PROXY": "http://proxy.example.com",
        "no_proxy": "*",
        "SOMETHING_ELSE": "real",
        "PATH": "/opt/somewhere/bin",
    }
    for name, value in inherited.items():
        monkeypatch.setenv(name, value)
    environment = claude_environment(URL, tmp_path / "home")
    assert not set(inherited.values()) & set(environment.values()) - {"1"}
    assert set(inherited) & set(environment) == {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "PATH"}
    assert environment["ANTHROPIC_BASE_URL"] == URL
    assert environment["HOME"] == str(tmp_path / "home")
    assert Path(environment["TMPDIR"]).is_dir()
    assert Path(environment["TMPDIR"]).is_relative_to(environment["HOME"])
    switches = ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"]
    assert {environment[name] for name in [*switches, "DISABLE_ERROR_REPORTING", "IS_SANDBOX"]} == {"1"}
    assert (environment["CLAUDE_CODE_ENTRYPOINT"], environment["ENABLE_TOOL_SEARCH"]) == ("sdk-py", "false")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1/", "http://127.0.0.1"]
)
def test_loopback_is_let_through(url: str, tmp_path: Path):
    """An address on this machine is passed on unchanged."""
    assert claude_environment(url, tmp_path)["ANTHROPIC_BASE_URL"] == url


@pytest.mark.parametrize(
    "url",
    [
        "https://api.anthropic.com",
        "https://127.0.0.1:1",
        "http://127.0.0.1.example.com",
        "http://127.0.0.1@example.com",
        "http://example.com/?http://127.0.0.1",
        "http://key@127.0.0.1:1",
        "http://0.0.0.0:1",
        "http://[::1",
        "127.0.0.1:1234",
        "",
    ],
)
def test_any_other_address_is_refused(url: str, tmp_path: Path):
    """A model that is not clearly on this machine is refused, as an argument and as an extra variable."""
    with pytest.raises(ValueError, match="the model must be at"):
        claude_environment(url, tmp_path)
    with pytest.raises(ValueError, match="the model must be at"):
        claude_environment(URL, tmp_path, extra={"ANTHROPIC_BASE_URL": url})


@pytest.mark.parametrize(
    "name",
    [
        "AWS_REGION",
        "GOOGLE_CLOUD_PROJECT",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_AUTH_TOKEN",
        "https_proxy",
        "ALL_PROXY",
        "HOME",
        "CLAUDE_CONFIG_DIR",
    ],
)
def test_extra_variables_may_not_lead_away(name: str, tmp_path: Path):
    """Variables that bring in an account, a proxy, another provider or another home are refused by name."""
    with pytest.raises(ValueError, match=name):
        claude_environment(URL, tmp_path / "home", extra={name: str(tmp_path)})


def test_extra_variables_are_added(tmp_path: Path):
    """Other variables are added, or replace the defaults."""
    extra = {
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "LANG": "C",
        "ANTHROPIC_BASE_URL": "http://localhost:9",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
    }
    environment = claude_environment(URL, tmp_path, extra=extra)
    assert environment.items() >= extra.items()


def test_folders_live_as_long_as_the_block():
    """Inside the block there are a home, an empty working directory and options; afterwards nothing."""
    with ScriptedModel() as model, ClaudeEnvironment(model, extra={"X": "1"}) as environment:
        home, cwd = environment.home, environment.cwd
        assert environment.env == claude_environment(model.url, home, extra={"X": "1"})
        assert environment.options_kwargs() == {"env": environment.env, "inherit_env": False, "cwd": str(cwd)}
        assert list(cwd.iterdir()) == []
        (home / ".claude").mkdir()
        (cwd / "file").write_text("x")
    assert not home.exists()
    assert not cwd.exists()
    assert not home.parent.exists()
    environment.close()
    with pytest.raises(RuntimeError, match="was not started"):
        _ = environment.env


def test_it_is_an_async_context_manager_too():
    """`async with` creates and removes the folders as `with` does; a URL may be passed in place of the model."""

    async def visit() -> Path:
        async with ClaudeEnvironment(URL) as environment:
            assert environment.home.is_dir()
            return environment.home

    assert not asyncio.run(visit()).exists()


def test_a_refused_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """When the environment is refused, no folder stays behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="the model must be at"):
        ClaudeEnvironment("http://example.com").start()
    assert list(tmp_path.iterdir()) == []


def test_removal_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    """If a folder cannot be removed because another process still writes to it, the removal is repeated."""
    real, refusals = shutil.rmtree, [OSError("not empty"), OSError("not empty")]

    def busy(path: Path) -> None:
        if refusals:
            raise refusals.pop()
        real(path)

    monkeypatch.setattr(shutil, "rmtree", busy)
    with ClaudeEnvironment(URL) as environment:
        home = environment.home
    assert not home.exists()


def test_a_failed_removal_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """The log names the folder, and the block ends normally."""
    real = shutil.rmtree

    def refuse(path: Path) -> None:
        raise PermissionError(f"no: {path}")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with caplog.at_level(logging.WARNING, "toolwire.testing"), ClaudeEnvironment(URL) as environment:
        home = environment.home
    assert "could not remove" in caplog.text
    assert os.fspath(home.parent) in caplog.text
    real(home.parent)
