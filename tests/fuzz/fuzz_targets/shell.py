"""The shell policies: any line gets a decision in time, and a line that is allowed starts no other program.

An allowed line is really run: by bash in a sandbox (`bwrap`) that shares nothing, where `evil` leaves a mark and
hardly anything else exists. Without `bwrap` and `bash` this part is left out.
"""

import asyncio
import functools
import os
import random
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import commands

_ALLOWING: Final = commands(allow=["echo", "true", "git status"])
_DENYING: Final = commands(deny=["evil", "rm -rf"])
_BOTH: Final = commands(allow=["echo", "true"], deny=["evil"])
_loop = asyncio.new_event_loop()
_SECONDS: Final = 5
_PIECES: Final = (
    *(
        "evil",
        "echo ",
        "true",
        "git status",
        "printf -v x ",
        "test -v ",
        "let ",
        "a[$(evil)]",
        "xargs ",
        "PS4=",
    ),
    *(
        "set -- ",
        "set -x",
        "eval ",
        "exec ",
        "env ",
        "env -S",
        "sh -c ",
        "bash -c",
        "sudo ",
        "X=",
        "X=evil",
        "$X",
    ),
    *(
        "${X}",
        "${X:-evil}",
        "${!X}",
        "${X@P}",
        "$((",
        "))",
        "$[",
        "((",
        "[[ ",
        " ]]",
        "x",
        "\\",
        "\n",
        "\r",
        "\x00",
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
        "{ ",
        "; }",
        ";",
        ";;",
        "&",
        "&&",
        "|",
        "||",
        "|&",
        "<",
        ">",
        "2>",
    ),
    *(
        ">&1",
        "&>",
        ">|",
        "<>",
        "#",
        " ",
        "\t",
        "!",
        "=",
        "$",
        "$'",
        '$"',
        "\\x65",
        "\\145",
        "{ev,il}",
        "*",
        "?",
    ),
    *(
        "[",
        "]",
        "~",
        "<<",
        "<<E\n",
        "\nE\n",
        "<<-E\n",
        "<<'E'\n",
        "<<<",
        "<(",
        ">(",
        "\\\n",
        "-c",
        "--",
        "coproc ",
    ),
    *(
        "if ",
        "then ",
        "fi",
        "for x in ",
        "do ",
        "done",
        "case x in ",
        "esac",
        "while ",
        "function f ",
        "f() ",
    ),
    *(
        "time ",
        "builtin ",
        "command ",
        ".",
        "source ",
        "alias ",
        "trap ",
        "unset ",
        "export ",
        "\u00a0",
        "é",
        "🙂",
    ),
    *(
        "/bin/evil",
        "./evil",
        "ev''il",
        "e\\vil",
        "$0",
        "$1",
        "$@",
        "$_",
        "-exec ",
        "{} ",
        "\\;",
        "\x1b",
        "\x7f",
    ),
)


def check(data: bytes) -> None:
    """Check the decisions about one line, and run it if it is allowed."""
    line = data.decode(errors="surrogateescape")
    verdicts = {policy: _verdict(policy, line) for policy in (_ALLOWING, _DENYING, _BOTH)}
    assert all(_verdict(policy, line) == said for policy, said in verdicts.items()), "two answers to one line"
    assert verdicts[_DENYING] != "allow", "a policy that only denies has allowed a line"
    assert verdicts[_ALLOWING] == "allow" or verdicts[_BOTH] != "allow", (
        "a denied command more, a line more allowed"
    )
    if re.fullmatch(r"((true|echo [a-z ]*) *[;&|\n] *)*(evil|rm -rf|rm -fr|rm -r -f)( [a-z0-9/.-]+)*", line):
        assert verdicts[_DENYING] == "deny", "a denied command in plain sight was not seen"
    assert _verdict(_ALLOWING, f"evil\n{line}") != "allow", "a command in front was not seen"
    if verdicts[_ALLOWING] == "allow":
        assert "<<" in line or _verdict(_ALLOWING, f"{line}\nevil") != "allow", (
            "a command behind was not seen"
        )
        assert not _runs_evil(line), "a line that is allowed starts another program"


def run(data: bytes) -> None:
    """Ask both kinds of policy, and check nothing."""
    line = data.decode(errors="surrogateescape")
    _verdict(_ALLOWING, line)
    _verdict(_DENYING, line)


def grow(data: bytes, size: int) -> bytes:
    """Repeat the line, without newlines between."""
    return data * (size // max(1, len(data)))


def mutate(data: bytes, rng: random.Random) -> bytes | None:
    """Insert pieces, remove parts, and repeat parts."""
    if rng.random() < 0.1:
        return None
    for _ in range(rng.randint(1, 4)):
        start, end = sorted(rng.randint(0, len(data)) for _ in range(2))
        kind = rng.randrange(5)
        if kind == 0 and len(data) > 1:
            end = min(end, start + 8)
            data = data[:start] + data[end:]
        elif kind == 1:
            data = data[:start] + data[start:end] * 2 + data[end:]
        else:
            data = data[:start] + rng.choice(_PIECES).encode() + data[start:]
    return data


def _verdict(policy: object, line: str) -> str:
    decision = _loop.run_until_complete(
        policy.decide("Bash", {"command": line}, ToolPermissionContext())  # type: ignore[attr-defined]
    )
    if decision is None:
        return "none"
    said: str = decision.result.behavior
    assert said in ("allow", "deny")
    assert said == "allow" or 0 < len(decision.result.message) < 1_000, "a refusal quotes its line in full"
    return said


@functools.lru_cache(maxsize=10_000)
def _runs_evil(line: str) -> bool:
    box = _sandbox()
    if box is None or "\x00" in line:
        return False
    command, mark, _ = box
    mark.unlink(missing_ok=True)
    try:
        subprocess.run(
            [*command, os.fsencode(line)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return mark.exists()


@functools.cache
def _sandbox() -> tuple[list[str], Path, object] | None:
    """Return the command that runs a line, the file that `evil` leaves, and the folder, which removes itself."""
    bwrap, bash = shutil.which("bwrap"), shutil.which("bash")
    if bwrap is None or bash is None:
        return None
    folder = tempfile.TemporaryDirectory(prefix="toolwire-fuzz-", ignore_cleanup_errors=True)
    tools = Path(folder.name)
    marks = tools / "marks"
    marks.mkdir(mode=0o777)
    marks.chmod(0o777)
    programs = tools / "bin"
    programs.mkdir()
    (programs / "evil").write_text("#!/shell/bash\n: > /marks/mark\n")
    (programs / "evil").chmod(0o755)
    libraries = [each for each in ("/lib", "/lib64", "/usr/lib", "/usr/lib64") if Path(each).exists()]
    command = [
        *(bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
        *(
            "--uid",
            "65534",
            "--gid",
            "65534",
            "--ro-bind",
            str(programs),
            "/bin",
            "--ro-bind",
            bash,
            "/shell/bash",
        ),
        *(part for each in libraries for part in ("--ro-bind", each, each)),
        *("--bind", str(marks), "/marks", "--tmpfs", "/tmp", "--chdir", "/tmp", "--dev", "/dev"),
        *("--setenv", "PATH", "/bin", "/shell/bash", "-c"),
    ]
    mark = marks / "mark"
    with suppress(subprocess.TimeoutExpired):
        subprocess.run([*command, "evil"], check=False, timeout=30, stderr=subprocess.DEVNULL)
    usable = mark.exists()
    return (command, mark, folder) if usable else None
