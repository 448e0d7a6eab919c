"""The real CLI, started by hand in the launcher's environment, follows the script."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from real.cli_under_test import cli_under_test
from toolwire.testing import ClaudeEnvironment, ScriptedModel, answer, call, fail, say, think, turn

Frame = dict[str, Any]
TIME_LIMIT = 30.0
ARGUMENTS = [
    *("--output-format", "stream-json", "--verbose", "--input-format", "stream-json"),
    *("--system-prompt", "", "--setting-sources=", "--strict-mcp-config"),
]


pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(cli_under_test() is None, reason="the package that carries the CLI is not installed"),
]


class Session:
    """A running CLI: lines in, frames out, every wait bounded by one deadline."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._deadline = time.monotonic() + TIME_LIMIT
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self._write({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}})

    def ask(self, prompt: str) -> list[Frame]:
        """Send a prompt; return all frames up to the result."""
        message = {"role": "user", "content": prompt}
        self._write({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "default"})
        frames: list[Frame] = []
        while not frames or frames[-1]["type"] != "result":
            frame = self._frames.get(timeout=max(0.01, self._deadline - time.monotonic()))
            assert frame is not None, f"the CLI ended early, after {frames[-3:]}"
            frames.append(frame)
        return frames

    def _write(self, frame: Frame) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._frames.put(json.loads(line))
        self._frames.put(None)


@contextmanager
def session(environment: ClaudeEnvironment, *arguments: str) -> Iterator[Session]:
    process = subprocess.Popen(
        [str(cli_under_test()), *ARGUMENTS, *arguments],
        env=environment.env,
        cwd=environment.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        running = Session(process)
        yield running
        process.stdin.close()
        process.wait(10)
        running.reader.join(10)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        process.stdin.close()
        process.stdout.close()


def blocks(frames: list[Frame], kind: str = "assistant") -> list[dict[str, Any]]:
    return [block for frame in frames if frame["type"] == kind for block in frame["message"]["content"]]


def test_two_turns_of_one_session():
    """Texts reach the user and prompts the model, turn after turn; the CLI sends no other requests."""
    odd = "añ😀\u2028 second"
    with (
        ScriptedModel(
            [turn(think("Hm."), say("First."), input_tokens=7, output_tokens=8), say(odd)]
        ) as model,
        ClaudeEnvironment(model) as environment,
        session(environment, "--tools", "") as cli,
    ):
        first, second = cli.ask("Erste Frage: ü?"), cli.ask("Again.")
        assert [block["type"] for block in blocks(first)] == ["thinking", "text"]
        assert blocks(first)[0]["thinking"] == "Hm."
        assert (first[-1]["subtype"], first[-1]["is_error"], first[-1]["result"]) == (
            "success",
            False,
            "First.",
        )
        assert (first[-1]["usage"]["input_tokens"], first[-1]["usage"]["output_tokens"]) == (7, 8)
        assert second[-1]["result"] == odd
        assert [request.prompt for request in model.requests] == ["Erste Frage: ü?", "Again."]
        assert model.others == []
        model.assert_finished()


def test_a_tool_is_run_and_its_result_comes_back():
    """A call in the script makes the CLI run the tool, and the next request carries what it returned."""
    with (
        ScriptedModel([turn(say("Reading."), call("Read", file_path="note.txt")), say("Done.")]) as model,
        ClaudeEnvironment(model) as environment,
    ):
        (environment.cwd / "note.txt").write_text("the secret is 42\n")
        with session(environment, "--tools", "Read", "--allowedTools", "Read") as cli:
            frames = cli.ask("Read the note.")
        assert frames[-1]["result"] == "Done."
        opening, closing = model.requests
        assert opening.tools == ["Read"]
        assert opening.tool_results == []
        assert [(result.tool_use_id, result.is_error) for result in closing.tool_results] == [
            ("toolu_0001", False)
        ]
        assert "the secret is 42" in closing.tool_results[0].text
        assert closing.prompt == "Read the note."
        model.assert_finished()


def test_failures_of_the_api():
    """An overload is tried again after a pause; a wrong key ends the turn, and the session goes on."""
    with (
        ScriptedModel(
            [fail(529), say("At last."), fail(401, "authentication_error", "bad key"), say("Yes.")]
        ) as model,
        ClaudeEnvironment(model) as environment,
        session(environment, "--tools", "") as cli,
    ):
        overloaded, refused, after = cli.ask("One."), cli.ask("Two."), cli.ask("Three.")
        (retry,) = (frame for frame in overloaded if frame.get("subtype") == "api_retry")
        assert (retry["attempt"], retry["error_status"], retry["error"]) == (1, 529, "overloaded")
        assert (overloaded[-1]["is_error"], overloaded[-1]["result"]) == (False, "At last.")
        assert (refused[-1]["is_error"], refused[-1]["api_error_status"]) == (True, 401)
        assert "bad key" in refused[-1]["result"]
        assert (after[-1]["is_error"], after[-1]["result"]) == (False, "Yes.")
        model.assert_finished()


def test_partial_messages_have_the_pieces_of_the_script():
    """With partial messages on, the pieces that the script cuts come one by one."""
    with (
        ScriptedModel([turn(say("abcdefgh"), chunk_size=3)]) as model,
        ClaudeEnvironment(model) as environment,
        session(environment, "--tools", "", "--include-partial-messages") as cli,
    ):
        frames = cli.ask("Spell.")
        events = [frame["event"] for frame in frames if frame["type"] == "stream_event"]
        pieces = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
        assert pieces == ["abc", "def", "gh"]
        assert frames[-1]["result"] == "abcdefgh"


def test_structured_output():
    """`answer` is checked by the CLI against the schema; a good one ends the run without another request."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    with (
        ScriptedModel([answer({"n": "many"}), answer({"n": 5})]) as model,
        ClaudeEnvironment(model) as environment,
        session(environment, "--tools", "", "--json-schema", json.dumps(schema)) as cli,
    ):
        frames = cli.ask("How many?")
        assert frames[-1]["structured_output"] == {"n": 5}
        assert model.requests[0].tools == ["StructuredOutput"]
        (complaint,) = model.requests[1].tool_results
        assert complaint.is_error
        model.assert_finished()


def test_a_script_that_runs_out_ends_the_run():
    """A request too many ends the turn at once with the reason in the result, and is counted once."""
    with (
        ScriptedModel([]) as model,
        ClaudeEnvironment(model) as environment,
        session(environment, "--tools", "") as cli,
    ):
        result = cli.ask("Anyone there?")[-1]
        assert (result["is_error"], result["api_error_status"]) == (True, 400)
        assert "the script has run out" in result["result"]
        assert len(model.unexpected) == len(model.requests) == 1
