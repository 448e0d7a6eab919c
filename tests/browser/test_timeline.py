"""The tab with the timeline: recordings, past sessions, every frame, and a run turned into a pytest."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from shared.programs import run_python
from toolwire.studio.timeline import read_recording

HERE = Path(__file__).parent


def send(page, text):
    """Send a prompt."""
    page.get_by_role("tab", name="Conversation").click()
    page.get_by_label("Prompt").fill(text)
    page.get_by_label("Prompt").press("Enter")


def write_recording(path, turns):
    """Write a recording with many frames: turns with a call each, and partial messages."""
    lines = [{"toolwire_recording": 1, "version": "0", "argv": ["claude"]}]
    t = 0.0

    def add(way, **frame):
        nonlocal t
        t += 0.01
        lines.append({"t": round(t, 4), "dir": way, "frame": frame})

    for turn in range(turns):
        used = f"toolu_{turn}"
        add(">", type="user", message={"role": "user", "content": f"prompt {turn}"})
        add("<", type="system", subtype="init", session_id="s", model="m", tools=[])
        for part in range(20):
            delta = {"type": "text_delta", "text": f"part {part}"}
            add("<", type="stream_event", event={"type": "content_block_delta", "index": 0, "delta": delta})
        block = {"type": "tool_use", "id": used, "name": "mcp__shop__add", "input": {"a": turn, "b": 1}}
        add("<", type="assistant", message={"id": f"m{turn}", "model": "m", "content": [block]})
        failed = turn % 50 == 7
        text = f"no {turn}" if failed else str(turn + 1)
        result = {"type": "tool_result", "tool_use_id": used, "content": text, "is_error": failed}
        add("<", type="user", message={"role": "user", "content": [result]})
        add(
            "<",
            type="result",
            subtype="success",
            is_error=False,
            num_turns=1,
            duration_ms=1,
            total_cost_usd=0.1,
        )
    lines.append({"t": t, "exit": 0})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(lines) - 2


def test_a_recording_with_5000_frames_is_opened_and_scrolled(start, tmp_path, record_property):
    """Only visible rows are drawn; any row can be opened, by mouse and by keyboard."""
    frames = write_recording(tmp_path / "run.jsonl", 200)
    assert frames >= 5_000
    page, _ = start("run.jsonl")
    began = time.monotonic()
    expect(page.get_by_text(f"{frames:,}", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("prompt 0"))).to_be_visible()
    record_property("seconds_to_open", round(time.monotonic() - began, 2))
    expect(page.get_by_text("What went wrong (4)")).to_be_visible()
    table = page.locator(".tw-table").first
    assert table.locator("tbody tr").count() < 200
    began = time.monotonic()
    table.locator(".q-table__middle").evaluate("each => { each.scrollTop = each.scrollHeight }")
    expect(page.get_by_role("row", name=re.compile("prompt 199"))).to_be_visible()
    record_property("seconds_to_scroll", round(time.monotonic() - began, 2))
    page.get_by_role("row", name=re.compile("prompt 199")).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Details").get_by_role("heading")).to_have_text(
        "prompt 199"
    )
    page.get_by_role("button", name="All frames").click()
    frames_table = page.locator(".tw-table").nth(1)
    row = frames_table.get_by_role("row", name=re.compile("user")).first
    row.click()
    expect(page.get_by_role("complementary", name="Details").get_by_text('"prompt 0"')).to_be_visible()


def test_what_failed_and_what_it_cost_are_found_from_the_page_alone(start, tmp_path):
    """A newcomer finds the reason of the failure at the top, with a button that leads to the call."""
    write_recording(tmp_path / "run.jsonl", 8)
    page, _ = start("run.jsonl")
    summary = page.get_by_role("region", name="Summary of the run")
    expect(summary.get_by_text("$0.1000, as the CLI computed it")).to_be_visible()
    expect(summary.get_by_text("What went wrong (1)")).to_be_visible()
    expect(summary.get_by_text(re.compile("shop: add: no 7"))).to_be_visible()
    summary.get_by_role("button", name=re.compile("^Show")).click()
    details = page.get_by_role("complementary", name="Details")
    expect(details.get_by_text("Failed: no 7")).to_be_visible()
    expect(details.get_by_text('"a": 7')).to_be_visible()


def test_a_run_becomes_a_pytest_that_passes_as_written(start, tmp_path):
    """The test is downloaded, passes beside the file of the tools, and fails when the tool is broken."""
    shutil.copy(HERE / "shop_app.py", tmp_path / "app.py")
    page, _ = start("app.py:shop", "--yes")
    send(page, "add a=15 b=27\nfail word=tea")
    expect(page.get_by_text("Turn ended")).to_be_visible()
    page.get_by_role("tab", name="Timeline").click()
    page.get_by_role("button", name="Turn into a pytest").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download test_run.py").click()
    written = tmp_path / "test_run.py"
    download.value.save_as(written)
    assert "mcp__shop__add" in written.read_text()
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout
    app = tmp_path / "app.py"
    app.write_text(app.read_text().replace("return a + b", "return a - b"))
    assert run_pytest(tmp_path).returncode == 1


def run_pytest(folder):
    """Run the written test as its user would."""
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {"HOME": str(folder)}
    return run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_run.py", env=env, cwd=folder)


def test_a_session_of_the_past_is_shown(start, tmp_path):
    """It is found by its id in the user's transcripts."""
    folder = tmp_path / "home" / ".claude" / "projects" / "-somewhere"
    folder.mkdir(parents=True)
    session = "11111111-2222-4333-8444-555555555555"
    entries = [
        {"type": "user", "message": {"role": "user", "content": "What is 1 + 1?"}},
        {
            "type": "assistant",
            "message": {"id": "m", "model": "m", "content": [{"type": "text", "text": "Two."}]},
        },
    ]
    lines, last = [], None
    for number, entry in enumerate(entries):
        uuid = f"00000000-0000-4000-8000-00000000000{number}"
        stamp = f"2026-11-01T10:00:0{number * 3}.000Z"
        lines.append(
            {**entry, "uuid": uuid, "parentUuid": last, "sessionId": session, "timestamp": stamp, "cwd": "/x"}
        )
        last = uuid
    (folder / f"{session}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page, _ = start(f"session:{session}")
    expect(page.get_by_role("row", name=re.compile(r"turn: What is 1 \+ 1\?"))).to_be_visible()
    page.get_by_role("row", name=re.compile("^model")).click()
    expect(page.get_by_role("complementary", name="Details").get_by_text("Two.")).to_be_visible()


def test_hostile_frames_are_text(start, tmp_path):
    """Hostile text in a recording is shown, and never run."""
    bad = "<img src=x onerror='window.pwned=1'>{{constructor.constructor('window.pwned=1')()}}</script>"
    lines = [
        {"toolwire_recording": 1, "version": bad, "argv": [bad]},
        {"t": 0, "dir": ">", "frame": {"type": "user", "message": {"role": "user", "content": bad}}},
        {"t": 1, "dir": "<", "frame": {"type": bad, "subtype": bad, "request": bad, "event": bad}},
        {"t": 2, "dir": "<", "frame": {"type": "result", "is_error": True, "result": bad, "subtype": bad}},
    ]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page, _ = start("run.jsonl")
    page.get_by_role("row", name=re.compile("^turn")).click()
    expect(page.get_by_text("onerror=").first).to_be_visible()
    page.get_by_role("button", name="All frames").click()
    page.locator(".tw-table").nth(1).get_by_role("row").nth(2).click()


def test_the_times_on_the_page_are_those_of_the_recording(start, tmp_path):
    """Start and duration of each span are those that are read from the file."""
    write_recording(tmp_path / "run.jsonl", 3)
    [timeline] = read_recording(tmp_path / "run.jsonl")
    page, _ = start("run.jsonl")
    for span in timeline.in_order():
        row = page.locator(".tw-table").first.locator("tbody tr.tw-row").nth(timeline.in_order().index(span))
        took = "..." if span.end is None else f"{span.end - span.start:.3f} s"
        expect(row).to_contain_text(f"{span.start:.3f}")
        expect(row).to_contain_text(took)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [("run.jsonl", "not JSON\n", "line 1: not JSON"), ("gone.jsonl", None, "No such file")],
)
def test_what_is_no_recording_is_said_in_the_terminal(tmp_path, name, text, why):
    """The command fails with the reason, before any page opens."""
    if text is not None:
        (tmp_path / name).write_text(text)
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {
        "HOME": str(tmp_path)
    }
    ran = run_python("-m", "toolwire", "studio", name, "--no-open", env=env, cwd=tmp_path)
    assert ran.returncode == 2
    assert why in ran.stderr
