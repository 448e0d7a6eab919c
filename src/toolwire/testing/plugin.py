"""The pytest plugin: fixtures for the scripted peers and for recordings.

Loaded into every pytest run where toolwire is installed, so it imports next to nothing: what a fixture needs is
imported when a test asks for it. Owns the lifetime of the peers and the assertions about them; must not know how
they work. What a fixture promises (the script was followed) is checked as the last step of the test itself, and
only if it passed: the first failure is the one to read.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from toolwire._support.words import closest

if TYPE_CHECKING:
    from toolwire._transport.custom import Transport
    from toolwire._transport.process import Command
    from toolwire.testing.environment import ClaudeEnvironment
    from toolwire.testing.scripted_model.model import ScriptedModel

_SWITCH: Final = "--toolwire-record"
_BACKENDS: Final = ("asyncio", "asyncio+uvloop", "trio")  # one recording serves them all
_checks = pytest.StashKey[list[Callable[[], None]]]()

Calls = list[tuple[str, dict[str, Any]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our switch."""
    parser.getgroup("toolwire").addoption(
        _SWITCH,
        action="store_true",
        help="tests with the `recording` fixture run for real and are recorded, instead of replayed",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """After a test that passed, check what its fixtures promise."""
    __tracebackhide__ = True
    try:
        outcome = yield
    finally:
        checks, item.stash[_checks] = item.stash.get(_checks, []), []  # it may be run again
    for check in checks:
        check()
    return outcome


class Scripted(ABC):
    """What `scripted_model` and `scripted_cli` have in common, so that a test can change one for the other."""

    @abstractmethod
    def script(self, *steps: Any) -> "Scripted":
        """Say what the model does, turn by turn; once in a test. Returns itself."""

    @abstractmethod
    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        """For `ClaudeAgentOptions(**peer.options_kwargs(...))`; `extra` adds to them or replaces them."""

    @abstractmethod
    def calls(self) -> Calls:
        """The tool calls that the model made so far, as name and arguments."""

    @abstractmethod
    def assert_no_pending(self) -> None:
        """Fail unless the script was followed to its end. The end of a test that passed does it too."""

    def close(self) -> None:  # noqa: B027 - a peer in memory has nothing to let go of
        """Let go of everything. The end of the test does it."""

    def assert_called(self, tool: str, /, **arguments: Any) -> None:
        """Fail unless `tool` was called with at least these arguments.

        Its name is bare (`add`) or full (`mcp__calc__add`).
        """
        __tracebackhide__ = True
        calls = self.calls()
        same_tool = [given for name, given in calls if tool in (name, bare(name))]
        if any(all(k in given and given[k] == v for k, v in arguments.items()) for given in same_tool):
            return
        wanted = _written(tool, arguments)
        if same_tool:
            lines = [f"expected: {wanted}", *(f"called:   {_written(tool, given)}" for given in same_tool)]
            raise AssertionError("\n".join([f"{tool} was called with other arguments", *lines]))
        names = [name for name, _ in calls]
        near = closest(tool, {*names, *map(bare, names)})
        hint = f" (did you mean {near!r}?)" if near else ""
        lines = [f"called:   {_written(name, given)}" for name, given in calls] or [
            "called:   no tool at all"
        ]
        raise AssertionError("\n".join([f"{tool} was not called{hint}", f"expected: {wanted}", *lines]))


class ModelPeer(Scripted):
    """The real CLI, aimed at a scripted model on loopback."""

    def __init__(self) -> None:
        self._model: ScriptedModel | None = None
        self._env: ClaudeEnvironment | None = None

    @property
    def model(self) -> "ScriptedModel":
        """The scripted model, started; with an empty script if there is none yet."""
        if self._model is None:
            self.script()
        assert self._model is not None  # noqa: S101 - script() has made it
        return self._model

    @property
    def env(self) -> "ClaudeEnvironment":
        """Where the CLI lives: its variables, home and working directory."""
        from toolwire.testing.environment import ClaudeEnvironment  # noqa: PLC0415 - see the module

        if self._env is None:
            self._env = ClaudeEnvironment(self.model).start()
        return self._env

    def script(self, *steps: Any) -> "ModelPeer":
        from toolwire.testing.scripted_model.model import ScriptedModel  # noqa: PLC0415

        if self._model is not None:
            raise RuntimeError(
                "scripted_model has its script already; give it whole, before options_kwargs()"
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
            given["cli_path"] = cli  # the pinned one, not whatever this machine has
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
        self._cli: Any = None
        self._calls: dict[Any, tuple[str, dict[str, Any]]] = {}

    def script(self, *steps: Any) -> "CLIPeer":
        from toolwire.testing.scripted_cli.cli import ScriptedCLI  # noqa: PLC0415 - see the module

        if self._cli is not None:
            raise RuntimeError("scripted_cli has its script already; give it whole, before options_kwargs()")
        self._cli = ScriptedCLI(list(steps))
        return self

    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        if self._cli is None:
            self.script()
        return {"spawn_claude_code_process": self._spawn, **extra}

    def calls(self) -> Calls:
        return list(self._calls.values())

    def assert_no_pending(self) -> None:
        __tracebackhide__ = True
        if self._cli is not None:
            self._cli.assert_finished()

    def _spawn(self, command: "Command") -> Any:
        return _Watched(self._cli(command), self._see)

    def _see(self, frame: Any) -> None:
        if isinstance(frame, dict) and frame.get("type") == "assistant":
            self._calls.update(_tool_uses(frame.get("message") or {}))


class _Watched:
    """A transport that shows its frames to somebody else too."""

    def __init__(self, transport: "Transport", see: Callable[[Any], None]) -> None:
        self._transport = transport
        self._see = see

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def read_messages(self) -> Any:
        async for frame in self._transport.read_messages():
            self._see(frame)
            yield frame


class Recording:
    """A recording beside the test file: replayed, or made anew with `--toolwire-record`."""

    def __init__(self, path: Path, *, anew: bool) -> None:
        from toolwire.testing.recording.recorder import Recorder  # noqa: PLC0415 - see the module
        from toolwire.testing.recording.replay import Replay  # noqa: PLC0415

        self.path = path
        self.anew = anew
        self.starts_here = anew
        # A test that fails while it is recorded must not spoil the recording that there was.
        self._part = path.with_name(f"{path.name}.part")
        self._peer: Recorder | Replay = Recorder(self._part) if anew else Replay(path)
        if anew:
            path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, command: "Command") -> "Transport":
        """For `ClaudeAgentOptions.spawn_claude_code_process`."""
        return self._peer(command)

    def options_kwargs(self, **extra: Any) -> dict[str, Any]:
        """For `ClaudeAgentOptions(**recording.options_kwargs(...))`."""
        return {"spawn_claude_code_process": self, **extra}

    def assert_finished(self) -> None:
        """Fail unless all of the recording was played. The end of a test that passed does it too."""
        from toolwire.testing.recording.replay import Replay  # noqa: PLC0415

        if isinstance(self._peer, Replay):
            self._peer.assert_finished()

    def keep(self) -> None:
        """The test passed: check the replay, or put the new recording in its place."""
        __tracebackhide__ = True
        self.assert_finished()
        if self.anew and self._part.exists():
            self._part.replace(self.path)

    def close(self) -> None:
        """Remove what was not kept."""
        if self.anew:
            self._part.unlink(missing_ok=True)


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Iterator[ModelPeer]:
    """The real CLI with a scripted model: `scripted_model.script(call("add", a=1), say("done"))`."""
    peer = ModelPeer()
    _at_end(request, peer.assert_no_pending)
    with _guarded("scripted_model", "**scripted_model.options_kwargs()"):
        yield peer
        peer.close()


@pytest.fixture
def scripted_cli(request: pytest.FixtureRequest) -> Iterator[CLIPeer]:
    """The same without a process: a scripted CLI in memory, for tests in milliseconds."""
    peer = CLIPeer()
    _at_end(request, peer.assert_no_pending)
    with _guarded("scripted_cli", "**scripted_cli.options_kwargs()"):
        yield peer


@pytest.fixture
def claude_env() -> "Iterator[Callable[..., ClaudeEnvironment]]":
    """`claude_env(model)`: a home, a working directory and variables for the CLI, with a model or its URL."""
    from toolwire.testing.environment import ClaudeEnvironment  # noqa: PLC0415 - see the module

    made: list[ClaudeEnvironment] = []

    def make(model: "ScriptedModel | str", *, extra: Mapping[str, str] | None = None) -> ClaudeEnvironment:
        made.append(ClaudeEnvironment(model, extra=extra).start())
        return made[-1]

    with _guarded("claude_env", "**claude_env(model).options_kwargs()"):
        yield make
        for environment in made:
            environment.close()


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """The recording `recordings/<test name>.jsonl` beside the test file, as a way to start the CLI."""
    path = request.path.parent / "recordings" / f"{_file_name(request.node)}.jsonl"
    anew = bool(request.config.getoption(_SWITCH))
    if not anew and not path.exists():
        pytest.fail(
            f"no recording at {path}: run this test once with {_SWITCH}, which needs a CLI and its model",
            pytrace=False,
        )
    made = Recording(path, anew=anew)
    _at_end(request, made.keep)
    with _guarded("recording", "**recording.options_kwargs()"):
        yield made
        made.close()


@contextmanager
def _guarded(fixture: str, to_pass: str) -> Iterator[None]:
    """While a fixture is in use, no CLI is started without its options."""
    from toolwire._transport.live_guard import use_kit  # noqa: PLC0415 - see the module

    leave = use_kit(fixture, to_pass)
    try:
        yield
    finally:
        leave()


def bare(tool: str) -> str:
    """The name of a tool without its server: `add` for `mcp__calc__add`."""
    prefix, _, rest = tool.partition("__")
    return rest.partition("__")[2] or tool if prefix == "mcp" else tool


def _at_end(request: pytest.FixtureRequest, check: Callable[[], None]) -> None:
    request.node.stash.setdefault(_checks, []).append(check)


def _file_name(item: Any) -> str:
    """The test's name for a file: without its event loop, with its class."""
    callspec = getattr(item, "callspec", None)
    parts = [part for part in callspec.id.split("-") if part not in _BACKENDS] if callspec else []
    owner = f"{item.cls.__name__}." if getattr(item, "cls", None) else ""
    name = owner + getattr(item, "originalname", item.name) + (f"[{'-'.join(parts)}]" if parts else "")
    return re.sub(r"[^\w.\[\]-]", "_", name)


def _tool_uses(message: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[str, dict[str, Any]]]]:
    """The calls in a message of the model, each with its id."""
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "tool_use":
            yield block.get("id"), (str(block.get("name")), dict(block.get("input") or {}))


def _written(tool: str, arguments: Mapping[str, Any]) -> str:
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
