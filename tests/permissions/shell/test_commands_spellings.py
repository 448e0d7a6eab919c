"""`commands`: no spelling of a forbidden command gets through; a real shell decides what is such a spelling."""

import asyncio
import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import commands

POLICY = commands(allow=["echo", "true"], deny=["evil"])


def verdict(line):
    decision = asyncio.run(POLICY.decide("Bash", {"command": line}, ToolPermissionContext()))
    return "none" if decision is None else decision.result.behavior


def quoted(word):
    """Draw a spelling of a word that means the same to the shell."""
    ways = [word, f"'{word}'", f'"{word}"', f"\\{word}", f"{word[0]}''{word[1:]}", f'{word[0]}"{word[1:]}"']
    return st.sampled_from([*ways, f"{word[0]}\\\n{word[1:]}", f"$(echo {word})", f"`echo {word}`"])


@st.composite
def spelled(draw):
    """Draw a command that runs `evil`, wrapped in random ways."""
    line = f"{draw(st.sampled_from(['', 'A=1 ', '2>/dev/null ', './', '! ']))}{draw(quoted('evil'))} -x"
    for _ in range(draw(st.integers(0, 4))):
        wrap = draw(st.sampled_from(WRAPS))
        line = wrap(line)
    return line


def single(line):
    return "'" + line.replace("'", "'\\''") + "'"


WRAPS = [
    lambda line: f"true && {line}",
    lambda line: f"true; {line}",
    lambda line: f"{line}\ntrue",
    lambda line: f"true | {line}",
    lambda line: f"true & {line} &",
    lambda line: f"({line})",
    lambda line: f"{{ {line}\n}}",
    lambda line: f"echo $({line})",
    lambda line: f'echo "$({line})"',
    lambda line: f"sh -c {single(line)}",
    lambda line: f"env B=2 bash -ec {single(line)}",
    lambda line: f"eval {single(line)}",
    lambda line: f"if true; then {line}\nfi",
    lambda line: f"true # no\n{line}",
    lambda line: f"echo `echo a`; {line}",
    lambda line: f"X={single(line)}; eval $X",
]


@given(spelled())
@settings(max_examples=300, deadline=None)
def test_no_spelling_of_a_forbidden_command_gets_through(line):
    """This holds however the command is quoted, wrapped and nested."""
    assert verdict(line) == "deny"


PIECES = [
    *(
        "evil",
        "let ",
        "a[$(evil)]",
        "xargs ",
        "PS4=",
        "set -x",
        "test -v ",
        "env -S",
        "hash -p ",
        "ev",
        "il",
        "true",
        "echo",
        "sh -c",
        "eval",
        "env",
        "X=",
        "X=evil",
        "$X",
        "${X}",
        "x",
        "\\",
        "\n",
    ),
    *(
        "'",
        '"',
        "`",
        "$(",
        "(",
        ")",
        "{",
        "}",
        ";",
        ";;",
        "&",
        "&&",
        "|",
        "||",
        "<",
        ">",
        "2>",
        ">&1",
        "#",
        " ",
    ),
    *(
        " ",
        "  ",
        "\t",
        "!",
        "=",
        "$",
        "$'",
        "{ev,il}",
        "evil,",
        "*",
        "?",
        "[",
        "]",
        "<<",
        "<(",
        "\\\n",
        "-c",
        "{}",
    ),
]


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """Return a function that runs a line in a nearly empty shell and tells whether it ran `evil`."""
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("no bash here")
    box = tmp_path_factory.mktemp("box")
    tools, mark = box / "bin", box / "mark"
    tools.mkdir()
    (tools / "evil").write_text(f"#!{shell}\n: > {mark}\n")
    (tools / "evil").chmod(0o755)
    for name in ("sh", "bash"):
        (tools / name).symlink_to(shell)
    (tools / "env").symlink_to(shutil.which("env"))

    def runs_evil(line):
        mark.unlink(missing_ok=True)
        here = box / "here"
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        subprocess.run(
            [shell, "-c", line],
            env={"PATH": str(tools)},
            cwd=here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
        return mark.exists()

    assert runs_evil("evil")
    assert not runs_evil("true evil")
    return runs_evil


@pytest.mark.process
@given(line=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join))
@example(line="X=evil; $X")
@settings(
    max_examples=int(os.environ.get("SHELL_EXAMPLES", "250")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_what_a_real_shell_runs_is_seen(bash, line):
    """Random lines: if bash runs the forbidden command, the policy has denied the line."""
    if "evil" in line.replace("''", "") or "ev" in line:
        said = verdict(line)
        if said != "deny":
            assert not bash(line), f"{said}: {line!r}"


def test_the_shell_reader_is_quick():
    """A long line with many quotes is read in no time, and deep nesting is refused."""
    assert verdict("echo " + "'a' \"b\" \\c " * 5_000) == "allow"
    assert verdict("echo " + "$(echo " * 2_000 + ")" * 2_000) == "deny"
    assert verdict("sudo " * 200 + "ls") == "none"
