"""The pytest plugin: fixtures for the scripted model, the scripted CLI and recordings.

Loaded into every pytest run where toolwire is installed, so it imports almost nothing; a fixture imports what it
needs when a test uses it. Owns the lifetime of the objects that the fixtures provide and the assertions about them;
must not know how they work. A fixture checks that its script was followed as the last step of the test itself, and
only if the test passed, so that the first failure is the one that is shown.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from toolwire._transport.custom import Transport
    from toolwire._transport.process import Command
    from toolwire.testing.environment import ClaudeEnvironment
    from toolwire.testing.scripted_cli.cli import ScriptedCLI
    from toolwire.testing.scripted_model import ScriptedModel

_SWITCH: Final = "--toolwire-record"
_ALIAS: Final = "--toolwire-as-official"
_ALIAS_SETTING: Final = "toolwire_as_official"
_BACKENDS: Final = ("asyncio", "asyncio+uvloop", "trio")  # one recording serves them all
_checks = pytest.StashKey[list[Callable[[], None]]]()

Calls = list[tuple[str, dict[str, Any]]]
T = TypeVar("T", "ModelPeer", "CLIPeer", "Recording")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--toolwire-record` and `--toolwire-as-official`."""
    group = parser.getgroup("toolwire")
    group.addoption(
        _SWITCH,
        action="store_true",
        help="run tests with the `recording` fixture against the real CLI and record them, instead of replaying",
    )
    alias = "make `import claude_agent_sdk` import toolwire"
    group.addoption(_ALIAS, action="store_true", help=alias)
    parser.addini(_ALIAS_SETTING, alias, type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install toolwire in place of the official package, before a conftest can import the latter."""
    if early_config.known_args_namespace.toolwire_as_official or early_config.getini(_ALIAS_SETTING):
        from toolwire.official import install_as_official  # noqa: PLC0415 - see the module

        try:
            install_as_official()
        except RuntimeError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run the checks of the fixtures after a test that passed."""
    __tracebackhide__ = True
    try:
        outcome = yield
    finally:
        checks, item.stash[_checks] = item.stash.get(_checks, []), []  # a plugin may run the test again
    for check in checks:
        check()
    return outcome


class Scripted(ABC):
    """The interface of `scripted_model` and `scripted_cli`, so that a test can exchange one for the other."""

    @abstractmethod
    def script(self, *steps: Any) -> "Scripted":
        """Set the script. May be called once per test. Returns itself."""

    @abstractmethod
    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        """Return the arguments for `ClaudeAgentOptions`. Those in `extra` are added, or replace the defaults."""

    @abstractmethod
    def calls(self) -> Calls:
        """Return the tool calls of the model so far, each as name and arguments."""

    @abstractmethod
    def assert_no_pending(self) -> None:
        """Fail unless the script was played to its end. Also checked at the end of a test that passed."""

    def close(self) -> None:  # noqa: B027 - a peer in memory has nothing to release
        """Release everything. Called at the end of the test."""

    def assert_called(self, tool: str, /, **arguments: Any) -> None:
        """Fail unless `tool` was called with at least these arguments.

        The name is bare (`add`) or full (`mcp__calc__add`).
        """
        __tracebackhide__ = True
        from toolwire.testing.script import find_call  # noqa: PLC0415 - see the module

        find_call(self.calls(), tool, arguments)


class ModelPeer(Scripted):
    """The real CLI with a scripted model on loopback."""

    def __init__(self) -> None:
        self._model: ScriptedModel | None = None
        self._env: ClaudeEnvironment | None = None

    @property
    def model(self) -> "ScriptedModel":
        """The running scripted model. Its script is empty if none was set."""
        if self._model is None:
            self.script()
        assert self._model is not None  # noqa: S101 - script() has made it
        return self._model

    @property
    def env(self) -> "ClaudeEnvironment":
        """The CLI's environment: its variables, home and working directory."""
        from toolwire.testing.environment import ClaudeEnvironment  # noqa: PLC0415 - see the module

        if self._env is None:
            self._env = ClaudeEnvironment(self.model).start()
        return self._env

    def script(self, *steps: Any) -> "ModelPeer":
        from toolwire.testing.scripted_model import ScriptedModel  # noqa: PLC0415

        if self._model is not None:
            raise RuntimeError(
                "scripted_model already has a script; call script() once, before options_kwargs()"
            )
        self._model = ScriptedModel(steps).start()
        return self

    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        from toolwire._transport.find_cli import bundled_cli  # noqa: PLC0415
        from toolwire.testing.environment import claude_environment  # noqa: PLC0415

        given = {**self.env.options_kwargs(), "setting_sources": [], "strict_mcp_config": True, **extra}
        if "env" in extra:
            given["env"] = claude_environment(self.model.url, self.env.home, extra=extra["env"])
        if "cli_path" not in given and (cli := bundled_cli()):
            given["cli_path"] = cli  # the bundled CLI, not another one that is installed on this machine
        return given

    def calls(self) -> Calls:
        blocks: dict[Any, tuple[str, dict[str, Any]]] = {}
        for request in self.model.requests:
            for message in request.body.get("messages") or []:
                if message.get("role") == "assistant":
                    blocks.update(_tool_uses(message))
        return list(blocks.values())

    def assert_no_pending(self) -> None:
        __tracebackhide__ = True
        if self._model is not None:
            self._model.assert_finished()

    def close(self) -> None:
        for each in (self._env, self._model):
            if each is not None:
                each.close()


class CLIPeer(Scripted):
    """A scripted CLI in memory: no process, no network."""

    def __init__(self) -> None:
        self._cli: ScriptedCLI | None = None

    def script(self, *steps: Any) -> "CLIPeer":
        from toolwire.testing.scripted_cli.cli import ScriptedCLI  # noqa: PLC0415 - see the module

        if self._cli is not None:
            raise RuntimeError(
                "scripted_cli already has a script; call script() once, before options_kwargs()"
            )
        self._cli = ScriptedCLI(steps)
        return self

    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        if self._cli is None:
            self.script()
        return {"spawn_claude_code_process": self._cli, **extra}

    def calls(self) -> Calls:
        return [] if self._cli is None else list(self._cli._playback.requested)  # noqa: SLF001 - of this kit

    def assert_no_pending(self) -> None:
        __tracebackhide__ = True
        if self._cli is not None:
            self._cli.assert_finished()


class Recording:
    """A recording next to the test file: replayed, or recorded again with `--toolwire-record`."""

    def __init__(self, path: Path, *, anew: bool) -> None:
        from toolwire.testing.recording import Recorder, Replay  # noqa: PLC0415 - see the module

        self.path = path
        self.anew = anew
        self.starts_here = anew
        # A test that fails while it is recorded must not replace the previous recording.
        self._part = path.with_name(f"{path.name}.part")
        self._peer: Recorder | Replay = Recorder(self._part) if anew else Replay(path)
        if anew:
            path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, command: "Command") -> "Transport":
        """Make a connection, for `ClaudeAgentOptions.spawn_claude_code_process`."""
        return self._peer(command)

    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        """Return the arguments for `ClaudeAgentOptions(**recording.options_kwargs(...))`."""
        return {"spawn_claude_code_process": self, **extra}

    def assert_finished(self) -> None:
        """Fail unless the recording was played to its end. Also checked at the end of a test that passed."""
        from toolwire.testing.recording import Replay  # noqa: PLC0415

        if isinstance(self._peer, Replay):
            self._peer.assert_finished()

    def finish(self) -> None:
        """Check the replay, or save the new recording. Called after a test that passed."""
        __tracebackhide__ = True
        self.assert_finished()
        if self.anew and self._part.exists():
            self._part.replace(self.path)

    def close(self) -> None:
        """Delete a recording that was not saved."""
        if self.anew:
            self._part.unlink(missing_ok=True)


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Iterator[ModelPeer]:
    """Provide the real CLI with a scripted model: `scripted_model.script(call("add", a=1), say("done"))`."""
    peer = ModelPeer()
    yield from _provide(request, "scripted_model", peer, peer.assert_no_pending)


@pytest.fixture
def scripted_cli(request: pytest.FixtureRequest) -> Iterator[CLIPeer]:
    """Provide a scripted CLI in memory, without a process, for tests that take milliseconds."""
    peer = CLIPeer()
    yield from _provide(request, "scripted_cli", peer, peer.assert_no_pending)


@pytest.fixture
def claude_env() -> "Iterator[Callable[..., ClaudeEnvironment]]":
    """Provide `claude_env(model)`, which makes an environment for the CLI from a model or its URL."""
    from toolwire.testing.environment import ClaudeEnvironment  # noqa: PLC0415 - see the module

    made: list[ClaudeEnvironment] = []

    def make(model: "ScriptedModel | str", *, extra: Mapping[str, str] | None = None) -> ClaudeEnvironment:
        made.append(ClaudeEnvironment(model, extra=extra).start())
        return made[-1]

    with _guard("claude_env", "**claude_env(model).options_kwargs()"):
        yield make
        for environment in made:
            environment.close()


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Provide the recording `recordings/<test name>.jsonl` next to the test file."""
    path = request.path.parent / "recordings" / f"{_file_name(request.node)}.jsonl"
    anew = bool(request.config.getoption(_SWITCH))
    if not anew and not path.exists():
        pytest.fail(
            f"no recording at {path}; run this test once with {_SWITCH}, which needs the real CLI and a model",
            pytrace=False,
        )
    made = Recording(path, anew=anew)
    yield from _provide(request, "recording", made, made.finish)


def _provide(
    request: pytest.FixtureRequest, name: str, provided: T, check: Callable[[], None]
) -> Iterator[T]:
    """Provide a fixture's value. `check` is called after a test that passed; the value is closed in any case."""
    request.node.stash.setdefault(_checks, []).append(check)
    with _guard(name, f"**{name}.options_kwargs()"):
        yield provided
        provided.close()


@contextmanager
def _guard(fixture: str, to_pass: str) -> Iterator[None]:
    """Prevent a CLI from being started without the fixture's options, while the fixture is in use."""
    from toolwire._transport.live_guard import use_kit  # noqa: PLC0415 - see the module

    leave = use_kit(fixture, to_pass)
    try:
        yield
    finally:
        leave()


def _file_name(item: Any) -> str:
    """Return a file name for a test: its class and name, without the name of the event loop."""
    callspec = getattr(item, "callspec", None)
    parts = [part for part in callspec.id.split("-") if part not in _BACKENDS] if callspec else []
    owner = f"{item.cls.__name__}." if getattr(item, "cls", None) else ""
    name = owner + getattr(item, "originalname", item.name) + (f"[{'-'.join(parts)}]" if parts else "")
    return re.sub(r"[^\w.\[\]-]", "_", name)


def _tool_uses(message: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[str, dict[str, Any]]]]:
    """Yield the tool calls in a message of the model, each with its id."""
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "tool_use":
            yield block.get("id"), (str(block.get("name")), dict(block.get("input") or {}))
