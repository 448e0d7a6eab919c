"""The environment in which the real CLI may be started: built from nothing, aimed at loopback.

Owns the variables, and a temporary home and working directory. Nothing is inherited: no
credentials, no proxies, no settings of the person who runs the tests.
Must not know how the CLI is started, nor what the model says.
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from toolwire._support.addresses import is_loopback
from toolwire._support.log import logger_for
from toolwire._transport.live_guard import MARK, allow_live, use_kit
from toolwire.testing.scripted_model.model import ScriptedModel

__all__ = ["ClaudeEnvironment", "allow_live", "claude_environment"]

_log = logger_for("testing")

_SETTINGS = {
    "ANTHROPIC_API_KEY": "sk-ant-scripted-model-takes-any-key",
    "LANG": "C.UTF-8",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "IS_SANDBOX": "1",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "ENABLE_TOOL_SEARCH": "false",
}
# Without these a process does not start on Windows; elsewhere nothing is taken over.
_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT")
_REMOVAL_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)


def claude_environment(
    model_url: str, home: str | os.PathLike[str], *, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment for a CLI that talks to the model at `model_url` and lives in `home`.

    Makes `home` and its folder for temporary files where they are missing. `extra` adds or
    replaces variables, except those that could lead the CLI to another model, account or home.
    """
    _check_url(model_url)
    place = Path(home).absolute()
    temporary = place / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    environment = {
        **_SETTINGS,
        "ANTHROPIC_BASE_URL": model_url,
        "HOME": str(place),
        "TMPDIR": str(temporary),
        "PATH": _system_path(),
    }
    if os.name == "nt":
        environment.update({name: os.environ[name] for name in _WINDOWS if name in os.environ})
        environment.update(dict.fromkeys(("USERPROFILE", "APPDATA", "LOCALAPPDATA"), str(place)))
        environment.update(TEMP=str(temporary), TMP=str(temporary))
    for name, value in (extra or {}).items():
        _check_extra(name, value, place)
        environment[name] = value
    return {**environment, MARK: environment["ANTHROPIC_BASE_URL"]}


class ClaudeEnvironment:
    """A temporary home and working directory for the CLI, and the variables to go with them.

    For `with` and `async with`; both folders are gone afterwards. Meanwhile a CLI with another environment is not
    started: `LiveStartError`.
    """

    def __init__(self, model: ScriptedModel | str, *, extra: Mapping[str, str] | None = None) -> None:
        self._model = model
        self._extra = dict(extra or {})
        self._root: Path | None = None
        self._env: dict[str, str] = {}
        self._unguard: Callable[[], None] | None = None

    def start(self) -> Self:
        """Make the folders. A `with` block does it."""
        if self._root is None:
            url = self._model if isinstance(self._model, str) else self._model.url
            # Resolved, since the CLI reports the real path of its working directory.
            root = Path(tempfile.mkdtemp(prefix="toolwire-")).resolve()
            try:
                self._env = claude_environment(url, root / "home", extra=self._extra)
                (root / "work").mkdir()
            except BaseException:
                _remove(root)
                raise
            self._root = root
            self._unguard = use_kit("ClaudeEnvironment", "**environment.options_kwargs()")
            weakref.finalize(self, self._unguard)  # of one that nobody closed
        return self

    def close(self) -> None:
        """Remove the folders. May be called again; never raises."""
        root, self._root = self._root, None
        if self._unguard is not None:
            self._unguard()
        if root is not None:
            _remove(root)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def env(self) -> dict[str, str]:
        """The variables; a copy."""
        self._folder()
        return dict(self._env)

    @property
    def home(self) -> Path:
        """The CLI's home folder."""
        return self._folder() / "home"

    @property
    def cwd(self) -> Path:
        """The CLI's working directory, empty at first."""
        return self._folder() / "work"

    def options_kwargs(self) -> dict[str, Any]:
        """For `ClaudeAgentOptions(**environment.options_kwargs(), ...)`."""
        return {"env": self.env, "inherit_env": False, "cwd": str(self.cwd)}

    def _folder(self) -> Path:
        if self._root is None:
            raise RuntimeError("the environment is not there; use it in a `with` block")
        return self._root


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        local = parts.scheme == "http" and is_loopback(parts.hostname or "") and parts.username is None
    except ValueError:
        local = False
    if not local:
        raise ValueError(
            f"the model must be at http://127.0.0.1, http://localhost or http://[::1], not {url!r}"
        )


def _system_path() -> str:
    if os.name == "nt":
        root = os.environ.get("SYSTEMROOT", r"C:\Windows")
        return os.pathsep.join([rf"{root}\System32", root])
    folders = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    return os.pathsep.join(dict.fromkeys([*folders, *os.defpath.split(os.pathsep)]))


# What `extra` may not do: name -> whether it is meant; each leads away from the scripted model
# or to what the person who runs the tests owns.
_REFUSED: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("cloud credentials", lambda name: name.startswith(("AWS_", "GOOGLE_", "GCLOUD_", "AZURE_"))),
    ("another provider", lambda name: name.startswith("CLAUDE_CODE_USE_")),
    ("an account", lambda name: "OAUTH" in name or name == "ANTHROPIC_AUTH_TOKEN"),
    ("a proxy", lambda name: name.endswith("_PROXY")),
    ("another home", lambda name: name in {"HOME", "USERPROFILE"}),
)


def _check_extra(name: str, value: str, home: Path) -> None:
    upper = name.upper()
    for what, meant in _REFUSED:
        if meant(upper):
            raise ValueError(f"{name} may not be set for the CLI here: it would bring in {what}")
    if upper.startswith("ANTHROPIC_") and upper.endswith("_URL"):
        _check_url(value)
    if upper == "CLAUDE_CONFIG_DIR" and not Path(value).absolute().is_relative_to(home):
        raise ValueError(f"{name} must lie inside the temporary home, not at {value!r}")


def _remove(root: Path) -> None:
    """Remove a folder that a process may still be writing to; log when it stays."""
    problem: OSError | None = None
    for pause in (*_REMOVAL_PAUSES, 0.0):
        try:
            shutil.rmtree(root)
        except FileNotFoundError:
            return
        except OSError as error:
            problem = error
            time.sleep(pause)
        else:
            return
    _log.warning("could not remove %s: %s", root, problem)
