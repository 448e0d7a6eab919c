"""`toolwire run` on a real terminal, in a pipe, and with wrong arguments."""

import json
import os
import re
import shlex
import sys

import pytest

from shared.programs import run_program
from shared.terminal import Terminal
from shared.waiting import wait_until

APP = '''
import anyio
from pathlib import Path
from typing import Literal
from pydantic import BaseModel
from toolwire import Context, ToolServer

calc = ToolServer("calc")


@calc.tool(read_only=True)
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@calc.tool
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b


@calc.tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@calc.tool
def nasty() -> str:
    """Try to take the terminal over."""
    return "\\x1b[2Jcleared\\x1b]0;owned\\x07 [red]not red[/red]\\n2\\n3\\n4\\n5\\n6"


@calc.tool
async def climb(to: int, context: Context) -> str:
    """Tell how far it is, and wait at the top."""
    context.log("here we go")
    for step in range(1, to + 1):
        context.progress(step, to, f"step {step}")
    while not Path("go").exists():
        await anyio.sleep(0.01)
    return "at the top"


class Order(BaseModel):
    size: Literal["small", "large"] = "small"
    sugar: int
    milk: bool = False


@calc.tool
async def coffee(context: Context) -> str:
    """Ask what coffee it shall be."""
    answer = await context.elicit("What coffee?", Order)
    return f"{answer.action}: {answer.content}"


@calc.tool
async def sign_in(context: Context) -> str:
    """Send the user to an address."""
    answer = await context.elicit_url("Please sign in.", "https://example.com/login", "e1")
    return answer.action


@calc.tool
async def forever() -> str:
    """Never end."""
    await anyio.sleep_forever()
'''
ASKS = "[y]es, [a]lways this tool in this run, [n]o: "
REASON = "Why not? The model reads it (enter: no reason): "
COST = re.compile(r"\d+ turns?, \d+\.\d s, \d+ tokens in, \d+ out, \$\d\.\d{4} as computed by the CLI")


@pytest.fixture
def folder(tmp_path):
    """The user's working directory, with an app.py."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def environment(folder, **more):
    """Return a nearly empty environment without a CLI: --scripted then uses the scripted one."""
    return {"PATH": os.defpath, "HOME": str(folder), "TOOLWIRE_CLI": str(folder / "none"), **more}


def command(*arguments):
    return [sys.executable, "-m", "toolwire", "run", *arguments]


@pytest.fixture
def on_terminal(folder):
    """Return a function that runs the command on a terminal, with the tools of app.py and a scripted CLI."""

    def start(*arguments, env=None, size=(80, 24)):
        env = environment(folder, **(env or {}))
        return Terminal(command("-t", "app.py", "--scripted", *arguments), folder, env, size)

    return start


@pytest.fixture
def in_pipe(folder):
    """`in_pipe(...)` runs the command without a terminal."""

    def start(*arguments, stdin="", env=None):
        env = environment(folder, COLUMNS="200", **(env or {}))
        return run_program(command(*arguments), stdin=stdin, env=env, cwd=folder)

    return start


def written(folder, *steps):
    """Write a script file with these steps and return its name."""
    (folder / "play.py").write_text(f"from toolwire.testing import *\nscript = [{', '.join(steps)}]\n")
    return "play.py"


# --- on a terminal ----------------------------------------------------------------------------------------


def test_a_call_shows_arguments_time_result_and_cost(on_terminal):
    """The screen shows the kind of model, the call, its time and result, the answer, and a line with the cost."""
    with on_terminal("--yes", "add a=15 b=27") as terminal:
        terminal.expect("Scripted: a scripted CLI and a scripted model, no key, no network.")
        terminal.expect("→ calc.add(a=15, b=27)")
        terminal.expect(re.compile(r"✓ \d+\.\d\d s  42\.0"))
        terminal.expect("add returned: 42.0")
        terminal.expect(COST)
        assert terminal.wait() == 0
        assert "mcp__" not in terminal.screen()


def test_text_streams(on_terminal, folder):
    """The first words are shown before the last are written, and nothing is written twice."""
    script = written(folder, 'turn(say("one two three"), chunk_size=4, chunk_delay=0.4)')
    with on_terminal("--script", script, "go") as terminal:
        terminal.expect("one")
        assert "three" not in terminal.screen()
        terminal.expect("three")
        assert terminal.wait() == 0
        assert terminal.screen().count("one two three") == 1


def test_yes_no_and_always(on_terminal):
    """Each call needs permission; a "no" may have a reason for the model, and "always" holds for that tool."""
    with on_terminal() as terminal:
        terminal.expect("> ")
        terminal.send("divide a=6 b=3\n")
        terminal.expect("May it call calc.divide?\n  a=6, b=3\n" + ASKS)
        terminal.send("\nperhaps\ny\n")  # neither an empty line nor "perhaps" is an answer
        terminal.expect("divide returned: 2.0")
        terminal.expect("> ")
        terminal.send("divide a=6 b=3\n")
        terminal.expect(ASKS)
        terminal.send("n\n")
        terminal.expect(REASON)
        terminal.send("too risky\n")
        terminal.expect("divide failed: The user does not allow this call. They say: too risky")
        terminal.expect("> ")
        terminal.send("divide a=6 b=3\n")
        terminal.expect(ASKS)
        terminal.send("a\n")
        terminal.expect("divide returned: 2.0")
        terminal.expect("> ")
        terminal.send("divide a=8 b=2\n")
        terminal.expect("divide returned: 4.0")
        assert terminal.screen().count(ASKS) == 5
        terminal.expect("> ")
        terminal.send("echo text=hi\n")
        terminal.expect(ASKS)  # "always" does not include another tool
        terminal.send("\x04")
        terminal.expect("echo failed: The user does not allow this call.\n")


def test_input_typed_before_a_question_is_discarded(on_terminal, folder):
    """A `y` typed earlier must not allow a call."""
    script = written(
        folder, 'turn(say("wait"), call("mcp__calc__echo", text="x"), chunk_delay=0.5)', 'say("bye")'
    )
    with on_terminal("--script", script, "go") as terminal:
        terminal.expect("wait")
        terminal.send("y\n")
        terminal.expect(ASKS)
        terminal.send("n not now\n")
        terminal.expect("They say: not now")
        assert terminal.wait() == 0


def test_long_arguments_are_cut_in_the_call_and_whole_in_the_question(on_terminal):
    """The user sees all of what is allowed."""
    text = "x" * 150
    with on_terminal(f"echo text={text}") as terminal:
        terminal.expect(re.compile(r"→ calc\.echo\(text=\"x+…\)\n"))
        terminal.expect(f'text="{text}"')
        terminal.expect(ASKS)
        terminal.send("n no\n")
        assert terminal.wait() == 0


def test_progress_is_a_bar_that_is_removed(on_terminal, folder):
    """Log messages are lines; the bar is removed when the tool is done."""
    with on_terminal("--yes", "climb to=3") as terminal:
        terminal.expect("calc: here we go")
        terminal.expect(re.compile(r"calc\.climb ━+.* 3/3 step 3"))
        (folder / "go").touch()
        terminal.expect("climb returned: at the top")
        assert terminal.wait() == 0
        after = terminal.raw[terminal.raw.rindex("3/3 step 3") :]
        assert "\x1b[2K" in after[: after.index("✓")]


def test_a_form_of_a_server(on_terminal):
    """One prompt for each property, with choices and defaults; an invalid value is asked for again."""
    with on_terminal("--yes") as terminal:
        terminal.expect("> ")
        terminal.send("coffee\n")
        terminal.expect("calc asks: What coffee?")
        terminal.expect("size (small | large) [small]: ")
        terminal.send("huge\n")
        terminal.expect("size (small | large) [small]: ")
        terminal.send("large\n")
        terminal.expect("sugar (integer): ")
        terminal.send("\n")
        terminal.expect("sugar is required")
        terminal.send("2\n")
        terminal.expect("milk (yes/no) [no]: ")
        terminal.send("\n")
        terminal.expect("coffee returned: accept: size='large' sugar=2 milk=False")
        for answer in ("/decline\n", "\x04"):
            terminal.expect("> ")
            terminal.send("coffee\n")
            terminal.expect("[small]: ")
            terminal.send(answer)
            terminal.expect("coffee returned: decline: None")


def test_an_address_of_a_server(on_terminal):
    """The URL is shown; the user confirms, or declines."""
    with on_terminal("--yes") as terminal:
        for answer, action in (("\n", "accept"), ("/decline\n", "decline")):
            terminal.expect("> ")
            terminal.send("sign_in\n")
            terminal.expect("https://example.com/login")
            terminal.expect("to decline: ")
            terminal.send(answer)
            terminal.expect(f"sign_in returned: {action}")


def test_a_conversation_and_its_commands(on_terminal):
    """Prompts follow one another; /tools, /cost, /help and /exit are handled by the command itself."""
    with on_terminal() as terminal:
        terminal.expect("> ")
        terminal.send("/cost\n")
        terminal.expect("No turn yet.")
        terminal.expect("> ")
        terminal.send("hello\n")
        terminal.expect("I am a scripted model, not Claude")
        terminal.expect("add a=1 b=2")
        terminal.expect("> ")
        terminal.send("/tools\n")
        terminal.expect("calc.add: Add two numbers.")
        terminal.expect("> ")
        terminal.send("/cost\n")
        terminal.expect(COST)
        terminal.expect("> ")
        terminal.send("/help\n")
        terminal.expect("Type a prompt, or /tools")
        terminal.expect("> ")
        terminal.send("/exit\n")
        assert terminal.wait() == 0


def test_ctrl_d_ends_it(on_terminal):
    """The exit code at the end of input is 0."""
    with on_terminal() as terminal:
        terminal.expect("> ")
        terminal.send("\x04")
        assert terminal.wait() == 0


def test_ctrl_c_interrupts_the_turn_and_a_second_one_leaves(on_terminal):
    """The conversation continues after the first Ctrl-C; a prompt in between resets the count."""
    with on_terminal("--yes") as terminal:
        terminal.expect("> ")
        terminal.send("forever\n")
        terminal.expect("→ calc.forever()")
        terminal.send("\x03")
        terminal.expect("Interrupted.")
        terminal.expect("> ")
        terminal.send("add a=1 b=2\n")
        terminal.expect("add returned: 3.0")
        terminal.expect("> ")
        terminal.idle()
        terminal.send("\x03")
        terminal.expect("Press Ctrl-C again to leave.")
        terminal.expect("> ")
        terminal.idle()
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.screen()


def test_ctrl_c_at_a_question_interrupts_the_turn(on_terminal):
    """The tool is not called."""
    with on_terminal() as terminal:
        terminal.expect("> ")
        terminal.send("echo text=hi\n")
        terminal.expect(ASKS)
        terminal.idle()
        terminal.send("\x03")
        terminal.expect("Interrupted.")
        terminal.expect("> ")
        assert "echo returned" not in terminal.screen()


def test_the_user_can_leave_a_cli_that_does_not_respond(on_terminal, folder):
    """A second Ctrl-C leaves without waiting for the response to the first."""
    with on_terminal(
        "--script", written(folder, 'call("mcp__calc__echo", text="hi")', "silence()"), "--yes", "go"
    ) as terminal:
        terminal.expect("✓")
        terminal.idle()  # an interrupt before the silence begins would end the turn
        terminal.send("\x03")
        terminal.expect("press Ctrl-C again to leave.")
        terminal.send("\x03")
        assert terminal.wait() == 130


def test_one_prompt_that_is_interrupted_exits_with_130(on_terminal):
    """With a prompt as an argument, one Ctrl-C ends the command."""
    with on_terminal("--yes", "forever") as terminal:
        terminal.expect("→ calc.forever()")
        terminal.send("\x03")
        terminal.expect("Interrupted.")
        assert terminal.wait() == 130


@pytest.mark.parametrize("prompt", [[], ["go"]], ids=["typed", "argument"])
def test_ctrl_c_while_the_cli_starts_leaves(folder, prompt):
    """There is no turn to interrupt yet, and none begins after it."""
    cli = folder / "slow"
    cli.write_text("#!/bin/sh\ntouch started\nexec cat > input\n")
    cli.chmod(0o755)
    argv = command("-t", "app.py", *prompt)
    with Terminal(argv, folder, environment(folder, TOOLWIRE_CLI=str(cli))) as terminal:
        wait_until((folder / "started").exists)
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.screen()
    assert '"type":"user"' not in (folder / "input").read_text()


def test_results_are_made_safe_for_the_terminal(on_terminal):
    """Escape sequences are removed, markup is shown as text, and long results are cut."""
    with on_terminal("--yes", "nasty") as terminal:
        terminal.expect("cleared [red]not red[/red]")
        terminal.expect("… 2 more lines")
        assert terminal.wait() == 0
        assert "\x1b[2J" not in terminal.raw
        assert "owned" not in terminal.raw


def test_thinking_is_shown_on_request(on_terminal, folder):
    """Thinking is hidden without --thinking."""
    script = written(folder, 'turn(think("deep thought"), say("42"))')
    with (
        on_terminal("--script", script, "go") as hidden,
        on_terminal("--script", script, "--thinking", "go") as shown,
    ):
        assert (hidden.wait(), shown.wait()) == (0, 0)
        assert "deep thought" not in hidden.screen()
        assert shown.screen().count("deep thought") == 1


def test_no_color(on_terminal):
    """NO_COLOR is respected on a terminal, too."""
    colored = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    with on_terminal("--yes", "divide a=1 b=0") as plain_one:
        plain_one.wait()
        assert colored.search(plain_one.raw)
    with on_terminal("--yes", "divide a=1 b=0", env={"NO_COLOR": "1"}) as terminal:
        terminal.expect("ZeroDivisionError")
        assert terminal.wait() == 0
        assert not colored.search(terminal.raw)


def test_questions_reach_the_user_when_only_stdout_is_piped(folder):
    """They are shown on stderr, and the piped text has no escape sequences."""
    line = f"{shlex.join(command('-t', 'app.py', '--scripted', 'add a=1 b=2'))} | tee log"
    with Terminal(["/bin/sh", "-c", line], folder, environment(folder)) as terminal:
        terminal.expect(ASKS)
        terminal.send("y\n")
        terminal.expect("add returned: 3.0")
        assert terminal.wait() == 0
    log = (folder / "log").read_text()
    assert "add returned: 3.0" in log
    assert ASKS not in log
    assert "\x1b" not in log


# --- in a pipe --------------------------------------------------------------------------------------------


def test_in_a_pipe_the_input_is_the_prompt_and_nothing_is_asked(in_pipe):
    """Several lines are several calls. A call that is not allowed is denied, and stderr says how to allow it."""
    done = in_pipe("-t", "app.py", "--scripted", "--allow", "calc.add", stdin="add a=1 b=2\necho text=hi\n")
    assert done.returncode == 0, done.stderr
    assert "add returned: 3.0\necho failed: The call was not allowed" in done.stdout
    assert (
        "calc.echo was not allowed: there is no terminal to ask on. Use --allow calc.echo or --yes."
        in done.stderr
    )
    assert "\x1b" not in done.stdout + done.stderr


def test_questions_of_servers_are_declined_without_a_terminal(in_pipe):
    """A line on stderr says so."""
    done = in_pipe("-t", "app.py", "--scripted", "--yes", "coffee")
    assert "coffee returned: decline: None" in done.stdout
    assert "calc requested input from the user: declined, there is no terminal." in done.stderr


def test_json_is_one_frame_a_line(in_pipe, folder):
    """Stdout has nothing else; toolwire's own messages, such as progress, are among the frames."""
    (folder / "go").touch()
    done = in_pipe("-t", "app.py", "--scripted", "--yes", "--json", "climb to=1")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    kinds = [frame["type"] for frame in frames]
    assert kinds[0] == "system"
    assert kinds[-1] == "result"
    assert {"assistant", "user", "mcp_progress", "mcp_log"} <= set(kinds)
    assert next(frame for frame in frames if frame["type"] == "mcp_progress")["message"] == "step 1"


def test_quiet_prints_only_the_answer(in_pipe):
    """So a script can use it."""
    done = in_pipe("-t", "app.py", "--scripted", "--yes", "--quiet", "add a=1 b=2")
    assert (done.stdout, done.stderr, done.returncode) == ("add returned: 3.0\n", "", 0)


def test_two_targets_of_one_name(in_pipe, folder):
    """The second server gets a number after its name."""
    (folder / "other.py").write_text(APP)
    done = in_pipe("-t", "app.py", "-t", "other.py", "--scripted", "--yes", "calc_2.add a=1 b=2")
    assert "→ calc_2.add(a=1, b=2)" in done.stdout


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "more", "error"),
    [
        (['fail(400, message="no [b]good")'], [], "Error: API Error: 400 no [b]good"),
        (
            ['call("mcp__calc__add", a=1, b=2)', 'say("")'],
            ["--max-turns", "1"],
            "maximum number of turns (1)",
        ),
        (["exit_early(3)"], [], "Error: Claude Code failed (exit code: 3)"),
        (["garbage()", 'say("fine")', 'say("more")'], [], None),
    ],
)
def test_a_run_that_fails_is_a_line_and_exit_code_1(in_pipe, folder, steps, more, error):
    """The line gives the reason, without a traceback."""
    done = in_pipe("-t", "app.py", "--script", written(folder, *steps), "--yes", *more, "go")
    assert done.returncode == (0 if error is None else 1), done.stderr
    assert (error or "") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["-t", "gone.py", "hi"], "gone.py"),
        (["hi"], "Missing option"),
        (["-t", "app.py", "--bogus"], "No such option"),
        (["-t", "app.py", "--live", "--scripted", "hi"], "--live and --scripted exclude each other"),
        (["-t", "app.py", "--live", "--script", "x.py", "hi"], "--live and --script exclude each other"),
        (["-t", "app.py", "--scripted"], "The prompt is empty."),
        (
            ["-t", "app.py", "--scripted", "--allow", "shop", "hi"],
            "--allow shop matches no tool of the targets",
        ),
        (["-t", "app.py", "--scripted", "--record", "gone/x", "hi"], "--record: the folder"),
        (["-t", "app.py", "--scripted", "--record", "x", "hi"], "none was found"),
        (["-t", "app.py", "--scripted", "--max-turns", "0", "hi"], "max-turns"),
        (["-t", "app.py", "--scripted", "--cwd", "gone", "hi"], "does not exist"),
        (["-t", "app.py", "--script", "gone.py", "hi"], "The script gone.py does not exist."),
        (["-t", "app.py", "--script", "app.py", "hi"], 'has no top-level list "script"'),
        (["-t", "app.py", "--script", "exits.py", "hi"], "The script exits.py exited (exit code 4)"),
        (["-t", "app.py", "--script", "number.py", "hi"], "Step 1 of the script number.py is not a step"),
        (["-t", "app.py", "--script", "broken.py", "hi"], "The script broken.py failed: SyntaxError"),
    ],
)
def test_wrong_use_is_a_one_line_error_and_exit_code_2(in_pipe, folder, arguments, error):
    """No traceback for a user's mistake."""
    (folder / "number.py").write_text("script = [1]\n")
    (folder / "exits.py").write_text("raise SystemExit(4)\n")
    (folder / "broken.py").write_text("script = [\n")
    done = in_pipe(*arguments)
    assert done.returncode == 2, done.stderr
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_cli_the_error_suggests_scripted(in_pipe):
    """--live is the default; --scripted needs no CLI."""
    done = in_pipe("-t", "app.py", "hi")
    assert done.returncode == 1
    assert "Claude Code not found" in done.stderr
    assert "--scripted" in done.stderr


def test_prints_of_tools_are_not_in_the_json(in_pipe, folder):
    """They are on stderr."""
    (folder / "loud.py").write_text(
        "import atexit\natexit.register(print, 'leaving')\n"
        "print('loading')\n\ndef hum() -> str:\n    print('humming')\n    return 'hm'\n"
    )
    done = in_pipe("-t", "loud.py", "--scripted", "--yes", "--json", "hum")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()][-1] == "result"
    assert [word in done.stderr for word in ("loading", "humming", "leaving")] == [True] * 3


def test_prompts_can_be_typed_with_json_too(on_terminal):
    """The permission prompts are then on stderr."""
    with on_terminal("--json") as terminal:
        terminal.expect("> ")
        terminal.send("add a=1 b=2\n")
        terminal.expect(ASKS)
        terminal.send("y\n")
        terminal.expect('"type": "result"')
        terminal.expect("> ")
        terminal.send("/exit\n")
        assert terminal.wait() == 0
