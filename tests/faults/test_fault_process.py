"""Whatever happens to the CLI's process, at any step, the caller gets a typed error or the right result."""

import json
import os
import resource
import tempfile
from contextlib import contextmanager, suppress

import pytest

from faults.hostile_cli import HUGE, SPOILS, STEPS, TURN
from faults.leftovers import descriptors
from faults.stage import BACKENDS, WAIT, WAYS, name_of, one_by_one
from toolwire import (
    CLIConnectionError,
    CLINotFoundError,
    CLITimeoutError,
    LineDroppedMessage,
    OptionsError,
    ProcessError,
    typed,
)

EXITS = {"exit 0": 0, "exit 1": 1, "exit 137": 137, "SIGKILL": -9, "SIGSEGV": -11, "SIGTERM": -15}
EXITS |= {"cut off": 0, "cut short": 1}
SILENCES = ("hang", "deaf", "SIGSTOP", "close stdin")


def cases(faults):
    """Return every step with each of these faults, where the step occurs."""
    return [
        case
        for case in one_by_one(faults, STEPS)
        if not (case[0] == "closing" and case[1] in SPOILS)
        and not (case[0] == "control" and case[2] == "query")
    ]


@pytest.mark.parametrize(("step", "fault", "way", "backend"), cases(EXITS), ids=name_of)
def test_an_end_at_any_step(stage, step, fault, way, backend):
    """An exit before the result, or with a code other than 0, is an error with that code; a later exit is fine."""
    outcome = stage.play(backend, WAYS[way], stage.options(step, fault))
    code = EXITS[fault]
    if way == "client" and step == "closing":
        assert outcome.right, "nobody asks any more"
    elif way == "query" and step in ("result", "closing") and code == 0:
        assert outcome.right, outcome
    else:
        assert isinstance(outcome.error, ProcessError | CLIConnectionError), outcome
        if isinstance(outcome.error, ProcessError):
            assert outcome.error.exit_code == code
    if step in ("result", "closing"):
        assert outcome.results, "what came before the end is not lost"


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize(("step", "fault", "way", "backend"), cases(SILENCES), ids=name_of)
def test_a_silence_at_any_step(stage, step, fault, way, backend):
    """Control requests end at their own timeout, reading at the caller's; then the CLI is ended."""
    reached = stage.folder / "reached"
    limits = {} if step == "closing" else {"control_timeout": WAIT}
    if step in ("start", "initialize"):
        limits["initialize_timeout"] = WAIT
    options = stage.options(step, fault, env={"REACHED": str(reached)}, **limits)
    waits = way == "query" and step in ("idle", *TURN)
    waits = waits or (way == "client" and step in TURN)
    outcome = stage.play(
        backend,
        WAYS[way],
        options,
        until=reached if waits else None,
        allowed=("did not exit", "did not stop"),
    )
    if step == "closing":
        assert outcome.right, outcome
    elif outcome.error is not None:
        assert isinstance(outcome.error, CLITimeoutError), outcome
    else:
        assert outcome.given_up, outcome


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize(("step", "fault", "way", "backend"), cases(["close stdout"]), ids=name_of)
def test_an_output_that_ends_before_the_cli(stage, step, fault, way, backend):
    """Nothing more can come: a CLI that stays is ended, and waiting callers get an error."""
    outcome = stage.play(backend, WAYS[way], stage.options(step, fault))
    if step == "closing" or (step == "result" and way == "query"):
        assert outcome.right, outcome
    else:
        assert isinstance(outcome.error, ProcessError | CLIConnectionError), outcome


@pytest.mark.parametrize(
    ("step", "fault", "way", "backend"), cases(["close stderr", "flood stderr"]), ids=name_of
)
def test_stderr_changes_nothing(stage, step, fault, way, backend):
    """Stderr is always read, and the conversation does not need it."""
    outcome = stage.play(backend, WAYS[way], stage.options(step, fault))
    assert outcome.right, outcome


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", ["flood stderr, 50 MB", "100 MB"])
def test_more_than_anyone_wants(stage, fault, way, backend):
    """50 MB on stderr and a line of 100 MB are read, but not kept."""
    outcome = stage.play(backend, WAYS[way], stage.options("stream", fault))
    assert outcome.right, outcome
    dropped = [each.bytes for each in map(typed, outcome.messages) if isinstance(each, LineDroppedMessage)]
    assert (sum(dropped) > HUGE) is (fault == "100 MB")


@pytest.mark.parametrize("backend", BACKENDS)
def test_100_megabytes_with_the_default_limit(stage, backend):
    """The line is accepted whole, and the conversation goes on."""
    outcome = stage.play(backend, WAYS["query"], stage.options("stream", "100 MB", max_buffer_size=None))
    assert outcome.right, outcome.error
    assert not any(isinstance(typed(each), LineDroppedMessage) for each in outcome.messages)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", ["initialize", "message", "result", "closing"])
def test_a_child_of_the_cli_that_holds_its_streams(stage, step, way, backend):
    """When the CLI has exited, the conversation ends, though a child keeps its output open."""
    outcome = stage.play(backend, WAYS[way], stage.options(step, "leave a child"))
    if step == "closing" or (step == "result" and way == "query"):
        assert outcome.right, outcome
    else:
        assert isinstance(outcome.error, ProcessError | CLIConnectionError), outcome


# --- a CLI that does not start ---


def missing(stage, folder):
    return stage.options(cli_path=folder / "nowhere")


def a_folder(stage, folder):
    return stage.options(cli_path=folder)


def not_executable(stage, folder):
    return stage.options(cli_path=write_program(folder, b"#!/bin/sh\n", mode=0o644))


def no_program(stage, folder):
    return stage.options(cli_path=write_program(folder, b"\x7fELF, but no more of it"))


def no_interpreter(stage, folder):
    return stage.options(cli_path=write_program(folder, b"#!/nowhere/python\n"))


def a_broken_link(stage, folder):
    (folder / "claude").symlink_to("nowhere")
    return stage.options(cli_path=folder / "claude")


def no_cwd(stage, folder):
    return stage.options(cwd=folder / "nowhere")


def a_file_as_cwd(stage, folder):
    return stage.options(cwd=write_program(folder, b""))


def no_such_user(stage, _folder):
    return stage.options(user="nobody-of-that-name")


def one_long_argument(stage, _folder):
    return stage.options(extra_args={"odd": "x" * 3_000_000})


def many_arguments(stage, _folder):
    return stage.options(extra_args={f"odd{number}": "x" * 100_000 for number in range(100)})


def write_program(folder, content, mode=0o755):
    """Write a file to start as the CLI."""
    program = folder / "claude"
    program.write_bytes(content)
    program.chmod(mode)
    return program


STARTS = {
    missing: (CLINotFoundError, "nowhere"),
    a_folder: (CLINotFoundError, "the option cli_path: "),
    not_executable: (CLIConnectionError, "No permission to execute"),
    no_program: (CLIConnectionError, "Exec format error"),
    no_interpreter: (CLIConnectionError, "the interpreter named in its first line"),
    a_broken_link: (CLINotFoundError, "the option cli_path: "),
    no_cwd: (CLIConnectionError, "Working directory does not exist"),
    a_file_as_cwd: (CLIConnectionError, "Working directory is not a directory"),
    no_such_user: (CLIConnectionError, "nobody-of-that-name"),
    one_long_argument: (OptionsError, "too long for a command line"),
    many_arguments: (CLIConnectionError, "too large for this system"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("start", STARTS, ids=lambda each: each.__name__)
def test_a_cli_that_does_not_start(stage, tmp_path, start, way, backend):
    """The error is one of ours, and says what is wrong."""
    outcome = stage.play(backend, WAYS[way], start(stage, tmp_path))
    kind, words = STARTS[start]
    assert type(outcome.error) is kind
    assert words in str(outcome.error)


@contextmanager
def no_temporary_folder(folder):
    tempfile.tempdir = str(folder / "nowhere")
    yield


@contextmanager
def full_disk(_folder):
    """Keep files from growing: the system refuses each byte, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def few_descriptors(free):
    """Use up the descriptors of this process, except this many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(descriptors()) + 20, before[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trouble", [no_temporary_folder, full_disk], ids=lambda each: each.__name__)
def test_a_disk_that_takes_nothing(stage, tmp_path, trouble, way, backend):
    """The error is one of ours and says what to do, and no unfinished file stays."""
    options = stage.options(mcp_servers=json.dumps({"mcpServers": {"x": {"command": "y" * 200_000}}}))

    async def talk():
        with trouble(tmp_path):
            return await WAYS[way](options)

    outcome = stage.play(backend, talk)
    assert isinstance(outcome.error, CLIConnectionError), outcome
    assert "TMPDIR" in str(outcome.error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("free", range(16))
def test_descriptors_that_run_out(stage, free, backend):
    """Wherever they run out, there is an error of ours or the right result, and none that was opened stays open."""

    async def talk():
        with few_descriptors(free):
            return await WAYS["query"](stage.options())

    outcome = stage.play(backend, talk)
    assert outcome.right or isinstance(outcome.error, CLIConnectionError), outcome
    if free < 8:
        assert "Too many open files" in str(outcome.error)
