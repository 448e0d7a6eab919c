"""A clean environment for the real CLI in tests, with a model on loopback.

Owns the environment variables, and a temporary home and working directory. Nothing is inherited: no credentials,
proxies or settings of the user who runs the tests. Must not know how the CLI is started or how the model responds.
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from toolwire._support.addresses import is_loopback
from toolwire._support.log import logger_for
from toolwire._transport.live_guard import MARK, allow_live, use_kit
from toolwire.testing.scripted_model import ScriptedModel

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
# Processes do not start on Windows without these.
_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT")
_REMOVAL_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)


def claude_environment(
    model_url: str, home: str | os.PathLike[str], *, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return all environment variables for a CLI with the model at `model_url` and the home directory `home`.

    Creates `home` and its directory for temporary files if they are missing. `extra` adds or replaces variables;
    raises `ValueError` for variables that could lead the CLI to another model, account or home.
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
    """A temporary home and working directory for the CLI, and its environment variables.

    Use it with `with` or `async with`; both directories are removed at the end. Until then, starting a CLI with
    another environment raises `LiveStartError`.
    """

    def __init__(self, model: ScriptedModel | str, *, extra: Mapping[str, str] | None = None) -> None:
        self._model = model
        self._extra = dict(extra or {})
        self._root: Path | None = None
        self._env: dict[str, str] = {}
        self._unguard: Callable[[], None] | None = None

    def start(self) -> Self:
        """Create the directories. A `with` block calls this."""
        if self._root is None:
            url = self._model if isinstance(self._model, str) else self._model.url
            # Resolved, because the CLI reports the real path of its working directory.
            root = Path(tempfile.mkdtemp(prefix="toolwire-")).resolve()
            try:
                self._env = claude_environment(url, root / "home", extra=self._extra)
                (root / "work").mkdir()
            except BaseException:
                _remove(root)
                raise
            self._root = root
            self._unguard = use_kit("ClaudeEnvironment", "**environment.options_kwargs()")
            weakref.finalize(self, self._unguard)  # if it is never closed
        return self

    def close(self) -> None:
        """Remove the directories. May be called more than once; never raises."""
        root, self._root = self._root, None
        if self._unguard is not None:
            self._unguard()
        if root is not None:
            _remove(root)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def env(self) -> dict[str, str]:
        """A copy of the variables."""
        self._get_root()
        return dict(self._env)

    @property
    def home(self) -> Path:
        """The CLI's home directory."""
        return self._get_root() / "home"

    @property
    def cwd(self) -> Path:
        """The CLI's working directory, empty at the start."""
        return self._get_root() / "work"

    def options_kwargs(self) -> dict[str, Any]:
        """Return the arguments for `ClaudeAgentOptions(**environment.options_kwargs(), ...)`."""
        return {"env": self.env, "inherit_env": False, "cwd": str(self.cwd)}

    def _get_root(self) -> Path:
        if self._root is None:
            raise RuntimeError("the environment was not started; use it in a `with` block or call start()")
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


# Variables that `extra` may not set: what they would add, and a test of the name.
_FORBIDDEN: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("cloud credentials", lambda name: name.startswith(("AWS_", "GOOGLE_", "GCLOUD_", "AZURE_"))),
    ("another provider", lambda name: name.startswith("CLAUDE_CODE_USE_")),
    ("an account", lambda name: "OAUTH" in name or name == "ANTHROPIC_AUTH_TOKEN"),
    ("a proxy", lambda name: name.endswith("_PROXY")),
    ("another home", lambda name: name in {"HOME", "USERPROFILE"}),
)


def _check_extra(name: str, value: str, home: Path) -> None:
    upper = name.upper()
    for what, matches in _FORBIDDEN:
        if matches(upper):
            raise ValueError(f"{name} may not be set for a CLI under test, because it would add {what}")
    if upper.startswith("ANTHROPIC_") and upper.endswith("_URL"):
        _check_url(value)
    if upper == "CLAUDE_CONFIG_DIR" and not Path(value).absolute().is_relative_to(home):
        raise ValueError(f"{name} must be inside the temporary home {str(home)!r}, not {value!r}")


def _remove(root: Path) -> None:
    """Remove a directory that a process may still be writing to; log a warning if it cannot be removed."""
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
