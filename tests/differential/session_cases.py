"""Files of sessions for both packages: usual ones, and each difficulty that is known to break a reader."""

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared.transcripts import SESSION, Writer

OTHER = str(uuid.UUID(int=99))
AGENT = "a1b2c3d4e5f60718a"


@dataclass
class Case:
    """A CLI's folder that is being built, and the arguments with which functions are called on it."""

    config: Path
    directory: str = "/work"
    session: str = SESSION
    up_to: str | None = None
    writer: Writer = field(default_factory=Writer)

    def save(self, key: str = "-work") -> Path:
        """Write the transcript."""
        return self.writer.write(self.config, key)


CASES: dict[str, Callable[[Case], object]] = {}


def case(make: Callable[[Case], object]) -> Callable[[Case], object]:
    """Add a case under the name of its function."""
    CASES[make.__name__.replace("_", " ")] = make
    return make


def converse(it: Case) -> str:
    """Write two turns with calls; return the place where they end."""
    place = it.writer.answer(it.writer.ask(None, "one"), "two", calls=2, finish_order=(1, 0))
    return it.writer.answer(it.writer.ask(place, "three"), "four")


@case
def a_conversation(it: Case) -> None:
    it.up_to = converse(it)
    it.writer.note(type="custom-title", customTitle="Title")
    it.writer.note(type="tag", tag="blue")
    it.writer.note(type="last-prompt", lastPrompt="three")
    it.save()


@case
def taken_back_prompts(it: Case) -> None:
    place = it.writer.answer(it.writer.ask(None, "one"), "two")
    it.writer.answer(it.writer.ask(place, "wrong"), "not wanted")
    it.writer.answer(it.writer.ask(place, "right"), "wanted")
    it.save()


@case
def a_subagent(it: Case) -> None:
    converse(it)
    folder = it.save().with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    writer = Writer()
    writer.answer(writer.ask(None, "look"), "looked")
    for line in writer.lines:
        line.update(isSidechain=True, agentId=AGENT)
    (folder / f"agent-{AGENT}.jsonl").write_bytes(writer.encode())
    (folder / f"agent-{AGENT}.meta.json").write_text(json.dumps({"toolUseId": "toolu_2_0", "agentType": "x"}))


@case
def a_subagent_with_parallel_calls(it: Case) -> None:
    converse(it)
    folder = it.save().with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    writer = Writer()
    writer.answer(writer.ask(None, "look"), "looked", calls=2, finish_order=(1, 0))
    for line in writer.lines:
        line.update(isSidechain=True, agentId=AGENT)
    (folder / f"agent-{AGENT}.jsonl").write_bytes(writer.encode())


@case
def no_session(it: Case) -> None:
    converse(it)
    it.save()
    it.session = OTHER


@case
def a_bad_id(it: Case) -> None:
    converse(it)
    it.save()
    it.session = "../../x"


@case
def an_id_with_a_newline(it: Case) -> None:
    converse(it)
    it.save()
    it.session = SESSION + "\n"


@case
def an_id_in_capitals(it: Case) -> None:
    converse(it)
    it.save()
    it.session = SESSION.upper()


@case
def an_empty_file(it: Case) -> None:
    it.save()


@case
def only_a_command(it: Case) -> None:
    it.writer.ask(None, "<command-name>/model</command-name>")
    it.save()


@case
def a_prompt_of_two_texts(it: Case) -> None:
    it.writer.ask(None, [{"type": "text", "text": "<tick>"}, {"type": "text", "text": "  the\nprompt "}])
    it.save()


@case
def a_sidechain(it: Case) -> None:
    it.writer.ask(None, "hidden", isSidechain=True)
    it.save()


@case
def a_sidechain_behind_a_note(it: Case) -> None:
    it.writer.note(type="queue-operation", operation="enqueue", content="x")
    it.writer.ask(None, "hidden", isSidechain=True)
    it.save()


@case
def a_title_in_the_middle(it: Case) -> None:
    place = it.writer.answer(it.writer.ask(None, "one"), "x" * 70_000)
    it.writer.note(type="custom-title", customTitle="Mine")
    it.writer.note(type="tag", tag="blue")
    it.writer.answer(it.writer.ask(place, "two"), "x" * 70_000)
    it.save()


@case
def a_prompt_behind_a_long_line(it: Case) -> None:
    it.writer.note(type="queue-operation", operation="enqueue", content="x" * 70_000)
    converse(it)
    it.save()


@case
def a_long_prompt(it: Case) -> None:
    it.writer.ask(None, "long " * 20_000)
    it.save()


@case
def fields_in_a_tools_input(it: Case) -> None:
    converse(it)
    fields = {"customTitle": "evil", "gitBranch": "evil", "summary": "evil"}
    it.writer.lines[3]["message"]["content"][0]["input"] = fields
    it.save()


@case
def a_torn_last_line(it: Case) -> None:
    converse(it)
    with it.save().open("ab") as file:
        file.write(b'{"type":"user","uu')


@case
def invalid_utf_8(it: Case) -> None:
    converse(it)
    path = it.save()
    path.write_bytes(b'{"type":"x","y":"\xff"}\n' + path.read_bytes())


@case
def a_deep_line(it: Case) -> None:
    converse(it)
    path = it.save()
    path.write_bytes(path.read_bytes() + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n")


@case
def a_gap(it: Case) -> None:
    converse(it)
    del it.writer.lines[2]
    it.save()


@case
def entries_twice(it: Case) -> None:
    converse(it)
    path = it.save()
    path.write_bytes(path.read_bytes() * 2)


@case
def a_circle(it: Case) -> None:
    converse(it)
    it.writer.lines[0]["parentUuid"] = it.writer.lines[-1]["uuid"]
    it.save()


@case
def a_compaction(it: Case) -> None:
    place = it.writer.answer(it.writer.ask(None, "old"), "kept")
    place = it.writer.compact(place, keep=place)
    it.writer.answer(it.writer.ask(place, "new"), "newer")
    it.save()


@case
def an_emoji_in_the_path(it: Case) -> None:
    converse(it)
    it.directory = "/home/ada/rocket🚀x"
    it.save("-home-ada-rocket--x")


@case
def a_decomposed_path(it: Case) -> None:
    converse(it)
    it.directory = "/home/ada/cafe\u0301"
    it.save("-home-ada-cafe-")


@case
def a_long_path_that_never_ran(it: Case) -> None:
    converse(it)
    it.directory = "/" + "a" * 250 + "/one"
    it.save("-" + "a" * 199 + "-abcdef")


@case
def a_folder_in_place_of_a_file(it: Case) -> None:
    converse(it)
    path = it.save()
    path.rename(path.with_name(f"{OTHER}.jsonl"))
    path.mkdir()


@case
def other_traces(it: Case) -> None:
    converse(it)
    it.save()
    for name in ("file-history", "session-env"):
        (it.config / name / SESSION).mkdir(parents=True)
        (it.config / name / SESSION / "x").write_text("x")


@case
def a_copy_in_another_folder(it: Case) -> None:
    converse(it)
    path = it.save("-another")
    os.utime(path, (1, 1))
    it.save()
    it.directory = ""


@case
def an_api_request(it: Case) -> None:
    converse(it)
    it.writer.note(type="api-request", request={})
    it.save()


@case
def nothing_to_fork(it: Case) -> None:
    it.writer.note(type="custom-title", customTitle="Only a title")
    it.save()


@case
def an_unknown_message(it: Case) -> None:
    converse(it)
    it.up_to = OTHER
    it.save()
