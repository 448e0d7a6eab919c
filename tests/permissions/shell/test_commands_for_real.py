"""`commands`: allowed lines, run by a real bash, start the programs that were read in them, and nothing else."""

import asyncio
import os
import random
from collections import Counter

import pytest

from shared.shell_attacks import ATTACKS, BROAD
from shared.shell_sandbox import lines_that_leave_a_mark, programs_started
from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import commands
from toolwire.permissions.shell.allow_patterns import read_literal

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.process,
]  # a thousand shells take their time on a busy machine

ACCEPTED = int(os.environ.get("SHELL_LINES", "1000"))
ALLOW = [
    *("ls", "cat", "grep -n", "echo", "true", "cd", "git status", "git log --oneline ...", "find .", "sort"),
    *("cp [-r] * build/", "xargs grep", "python -m pytest", "tee []"),
]
BUILTINS = {"echo", "true", "cd"}
STUBS = [
    "ls",
    "cat",
    "grep",
    "git",
    "find",
    "sort",
    "cp",
    "xargs",
    "python",
    "tee",
    "evil",
    "rm",
    "touch",
    "sh",
]
STUBS += ["bash", "env", "wc", "x", "a"]
NOISE = [
    *"$`(){}<>!~#\\;&|*?[]^=%+@,:'\"-\n\t",
    *(
        "$(evil)",
        "`evil`",
        "<(evil)",
        "$x",
        "${x}",
        "$'a'",
        '$"a"',
        "$((1))",
        "{evil,x}",
        "{a..b}",
        "~",
        "~/x",
    ),
    *(
        "A=1",
        "A=1 ",
        "evil",
        "; evil",
        "& evil",
        "| evil",
        "|& evil",
        "&& evil",
        "\nevil",
        "\\\nevil",
        "#",
        "# x\nevil",
    ),
    *(
        "\\\n",
        " \\\n",
        "''",
        '""',
        "2>&1",
        ">/dev/null",
        " >/dev/null",
        "2>x",
        ">x",
        "<<x",
        "<<<x",
        "&>x",
        ">&x",
    ),
    *(
        "-exec",
        "-o",
        "--output=x",
        "\u00a0",
        "é",
        "\u2028",
        "'\n'",
        '"\n"',
        "\\\\",
        "\\'",
        '\\"',
        "*.py",
        "[a]",
        "!!",
    ),
]
QUOTES = [
    lambda text: text,
    lambda text: f"'{text}'",
    lambda text: f'"{text}"',
    lambda text: f"\\{text}",
    lambda text: f"{text[:1]}''{text[1:]}",
    lambda text: f'{text[:1]}"{text[1:]}"',
]
WORDS = [
    "-l",
    "-n",
    "a",
    "src",
    "a b",
    "x;y",
    "$(evil)",
    "`evil`",
    "a'b",
    "*.py",
    "a=b",
    "--",
    "-r",
    "build/",
    "$x",
    "\\",
]
WORDS += [
    "a\\",
    '\\"',
    "&& evil",
    "| evil",
    "> x",
    "#x",
    "a#b",
    "é",
    "a\nevil",
    "",
    "-q",
    "x*",
    "?",
    "HEAD~1",
    "2",
    "1",
]
JOINTS = [" ; ", ";", " && ", "&&", " || ", " | ", "|", "\n", " &\n", " & ", "\n\n", " \\\n && ", " # evil\n"]
STARTS = [
    *ALLOW,
    "git status --short",
    "grep -n a",
    "cp -r a build/",
    "cp a build/",
    "find . -name",
    "sort -rn",
]


def allowed(policy, line):
    decision = asyncio.run(policy.decide("Bash", {"command": line}, ToolPermissionContext()))
    return decision is not None and decision.result.behavior == "allow"


def make_line(chance):
    """Return a line of commands, more or less well formed."""
    parts = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        start = chance.choice(STARTS).replace(" ...", "").replace("[-r] * ", "").replace(" []", "")
        name, _, more = start.partition(" ")
        words = [chance.choice(QUOTES)(name) if chance.random() < 0.3 else name, more]
        words += [chance.choice(QUOTES)(chance.choice(WORDS)) for _ in range(chance.randint(0, 3))]
        if chance.random() < 0.3:
            words.insert(
                chance.randint(0, len(words)),
                chance.choice(("2>&1", ">/dev/null", "2> /dev/null", "&>/dev/null")),
            )
        parts += [
            chance.choice((" ", " ", " ", "  ", "\t", " \\\n ")).join(filter(None, words)),
            chance.choice(JOINTS),
        ]
    line = "".join(parts[:-1])
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        at = chance.randint(0, len(line))
        line = line[:at] + chance.choice(NOISE) + line[at + chance.choice((0, 0, 1)) :]
    return line


def accepted_lines(seed, count):
    policy, chance = commands(allow=ALLOW), random.Random(seed)  # noqa: S311 - test data
    found, tried = {}, 0
    loop = asyncio.new_event_loop()
    while len(found) < count:
        tried += 1
        line = make_line(chance)
        decision = loop.run_until_complete(policy.decide("Bash", {"command": line}, ToolPermissionContext()))
        if decision is not None and decision.result.behavior == "allow":
            found[line] = None
    loop.close()
    assert tried > count * 2  # the noise is refused, not smoothed over
    return list(found)


@pytest.mark.parametrize(
    ("seed", "shell", "count"), [(14, "bash", ACCEPTED), (48, "bash", ACCEPTED), (7, "sh", 300)]
)
def test_allowed_lines_start_what_was_read_in_them(seed, shell, count):
    """Each program that the shell starts is a command of the line, with exactly the words that the policy saw."""
    lines = accepted_lines(seed, count)
    for line, started in zip(lines, programs_started(lines, STUBS, shell), strict=True):
        read = [[word.text for word in command.words] for command in read_literal(line)]
        expected = Counter(tuple(argv) for argv in read if argv[0] not in BUILTINS)
        really = Counter(map(tuple, started))
        assert not really - expected, f"{line!r} started {really - expected}"
        if "||" not in line and ["cd"] not in [
            argv[:1] for argv in read
        ]:  # behind them a command may be skipped
            assert really == expected, f"{line!r} did not start {expected - really}"


def can_be_built(rule):
    try:
        commands(allow=[rule])
    except ValueError:
        return False
    return True


def test_the_attacks_are_attacks():
    """Most lines of the table do harm if no policy checks them."""
    lines = [line for lines in ATTACKS.values() for line in lines]
    assert len(set(lines)) == len(lines) >= 300
    marked = lines_that_leave_a_mark(lines)
    assert len(marked) >= 200, sorted(set(lines) - marked)


@pytest.mark.parametrize("allow", ATTACKS, ids=" + ".join)
def test_no_attack_breaks_an_allow_list(allow):
    """The rule cannot be built, or the line is not allowed, or it does no harm; with a broad list beside it too."""
    kept = [each for each in allow if can_be_built(each)]
    policies = [commands(allow=kept), commands(allow=[*BROAD, *kept])]
    passed = [line for line in ATTACKS[allow] if any(allowed(policy, line) for policy in policies)]
    assert not passed or not lines_that_leave_a_mark(passed)


def test_no_attack_breaks_the_broad_list():
    """No attack that a list for a coding agent would allow does any harm."""
    policy = commands(allow=BROAD)
    passed = [line for lines in ATTACKS.values() for line in lines if allowed(policy, line)]
    assert passed, "some lines are harmless, and show that the list is not empty"
    assert not lines_that_leave_a_mark(passed)
