"""Speaks the CLI's side of the protocol, one scene at a time (environment variable SCENE). Run as a program."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

scene = os.environ["SCENE"]
out = sys.stdout.buffer
argv = sys.argv[1:]
if "--mcp-config" in argv:  # read at the start, as the CLI does
    place = argv.index("--mcp-config") + 1
    if not argv[place].startswith("{"):
        argv[place] = Path(argv[place]).read_text()


def tell(**frame):
    out.write(json.dumps(frame).encode() + b"\n")
    out.flush()


def accept(request, **response):
    tell(
        type="control_response",
        response={"subtype": "success", "request_id": request["request_id"], "response": response},
    )


def assistant(text):
    tell(
        type="assistant",
        message={"role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]},
    )


def result(text="done", **more):
    base = {"subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    tell(type="result", session_id="s", result=text, **{**base, **more})


def state(name):
    tell(type="system", subtype="session_state_changed", state=name, sdk_host_only=True)


def ask(request_id="r1", **body):
    tell(type="control_request", request_id=request_id, request=body)


def read():
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None


def wait_for_end():
    while read() is not None:
        pass


def complain(text):
    sys.stderr.write(text)
    sys.stderr.flush()


def on_start():
    """Before anything is read."""
    if scene == "exits at once":
        complain("first line\ncannot find the flux capacitor\n")
        sys.exit(3)
    if scene == "never initializes":
        complain("thinking about it\n")
        wait_for_end()
    if scene in ("deaf", "deaf and busy"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if scene == "garbage":
        out.write(b'[SandboxDebug] hi\n\xff\xfe\n{"cut": \n\n42\n\r\n')
        out.flush()


def on_prompt(prompt):
    if scene != "no state":
        state("running")
    text = prompt["message"]["content"]
    if scene == "flood":
        for number in range(10_000):
            assistant(str(number))
        return
    if scene == "big":
        assistant("x" * 20_000_000)
    elif scene == "garbage":
        out.write(b"not json\n")
        assistant("survived")
    elif scene == "dies":
        assistant("so far")
        complain("x" * 20_000 + "\nthe last words\n")
        os._exit(7)
    elif scene == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif scene == "leaves early":
        sys.exit(0)
    elif scene == "fails":
        result("API Error: 529 overloaded", is_error=True, api_error_status=529, terminal_reason="api_error")
        state("idle")
        wait_for_end()
        complain("a detail\n")
        sys.exit(1)
    elif scene == "leaves a child":
        subprocess.Popen(["/bin/sleep", "30"], start_new_session=True)
        result()
        sys.exit(0)
    elif scene in ("hangs", "deaf and busy"):
        assistant("working")
        while True:
            time.sleep(60)
    elif scene == "never ends":
        assistant("working")
        return
    elif scene == "two runs":
        result("first of two")
        state("running")
        tell(type="system", subtype="init")
        assistant("from the background")
        result("second of two", origin={"kind": "task-notification"})
        state("idle")
        return
    elif scene == "no state":
        result(text)
        return
    elif scene == "odd requests":
        ask("q1", subtype="no_such_thing")
        tell(type="control_request", request={"subtype": "can_use_tool"})
        tell(type="control_request", request_id="q3")
        tell(type="control_request", request_id="q4", request={"subtype": ["x"]})
        tell(type="control_response", response="nonsense")
        tell(type="control_response", response={"request_id": "nobody", "subtype": "success"})
        tell(type="control_cancel_request", request_id="nobody")
        for _ in range(4):
            assistant(json.dumps(read()["response"], sort_keys=True))
    elif scene == "permission":
        ask("p1", subtype="can_use_tool", tool_name="Bash", input={"command": "ls"}, tool_use_id="t1")
        assistant(json.dumps(read()["response"], sort_keys=True))
    elif scene == "permission cancelled":
        ask("p1", subtype="can_use_tool", tool_name="Bash", input={}, tool_use_id="t1")
        assistant("asked")
        return
    elif scene == "hook":
        ask(
            "h1",
            subtype="hook_callback",
            callback_id="hook_0",
            input={"hook_event_name": "Stop"},
            tool_use_id=None,
        )
        assistant(json.dumps(read()["response"], sort_keys=True))
    elif scene == "echo":
        assistant(json.dumps(prompt, sort_keys=True))
    result(text if isinstance(text, str) else "blocks")
    state("idle")


on_start()
cancelled = False
while (frame := read()) is not None:
    if frame["type"] == "user":
        on_prompt(frame)
    elif frame["type"] == "control_request":
        subtype = frame["request"]["subtype"]
        if subtype == "initialize":
            accept(
                frame,
                claude_code_version="9.9.9",
                seen=frame["request"],
                argv=argv,
                env=dict(os.environ),
            )
        elif subtype == "set_model" and frame["request"]["model"] == "bad":
            tell(
                type="control_response",
                response={"subtype": "error", "request_id": frame["request_id"], "error": "no such model"},
            )
        elif subtype == "rewind_files":
            tell(
                type="control_response",
                response={
                    "subtype": "error",
                    "request_id": frame["request_id"],
                    "error": "Unsupported control request subtype: rewind_files",
                    "error_code": "unsupported_request",
                },
            )
        elif subtype == "stop_task":
            pass  # never answered
        else:
            if subtype == "interrupt" and scene == "permission cancelled":
                tell(type="control_cancel_request", request_id="p1")
            accept(frame, subtype=subtype)
            if subtype == "interrupt":
                result(
                    "interrupted",
                    is_error=True,
                    subtype="error_during_execution",
                    terminal_reason="aborted_streaming",
                )
                state("idle")
if scene in ("deaf", "deaf and busy"):
    while True:
        time.sleep(60)
