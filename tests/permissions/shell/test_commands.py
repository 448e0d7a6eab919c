"""`commands`: harmless lines pass, forbidden and unclear ones do not."""

import asyncio

import pytest

from shared.shell_policy import verdict
from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import commands

ALLOWED = [
    "ls",
    "ls -la /tmp *.py src/?.ts",
    "git status && git log --oneline | ls",
    "echo 'rm -rf /' \"rm -rf\" rm\\ -rf",
    "ls 2>&1 | echo b > /dev/null; ls &",
    "echo a # rm -rf /",
    "# a note\nls \\\n  -l",
    "echo '$HOME' \"\\$HOME\" 'it'\\''s' \"a \\\"b\\\"\"",
]
NO_OPINION = [
    "ls ~/x",
    "ls $HOME",
    "echo $(git status) `ls`",
    "(ls; echo a)",
    "sh -c 'ls && git status'",
    "{ ls; }",
    "! ls",
    "ls < in.txt",
    "echo {}",
    'echo "hi!"',
    "git status --config x",
    "git log --output=x",
    "",
    "cat x",
    "git statusx",
    "git",
    "./ls",
    "/tmp/ls",
    "PATH=/tmp ls",
    "PATH=/tmp; ls",
    "ls > out.txt",
    "ls >> out.txt",
    "ls &> $X",
    "echo $(cat x)",
    "rm -r x",
    "rm -f x",
    "git pull",
    "python3 -c 'print(1)'",
    "sudo ls",
    "find . -name '*.py' -newer a -regex '.*(a|b)'",
    "find . -type f | xargs grep x",
    "timeout 5 pytest -k 'a and b'",
    "[ -f x ] && test -d y",
    "X=1 sh -c ls",
    "env A=1 curl -sS u",
    "sudo systemctl restart ssh",
    "sudo -n ls -si",
    "ssh h ls",
    "ls \\\n | cat",
]
DENIED = [
    "rm -rf /",
    "ls; rm -rf x",
    "ls\nrm -rf x",
    "ls & rm -rf x",
    "ls | rm -rf x",
    "rm -r -f x",
    "rm -fr x",
    "rm x -R --force",
    "rm --recursive --force x",
    "/bin/rm -rf x",
    "'r'm -rf x",
    "r\\m -rf x",
    "r\\\nm -rf x",
    "RM -rf x",
    "rm $FLAGS x",
    "rm {-rf,x}",
    "rm *",
    "$X -rf x",
    "r? -rf x",
    "{rm,-rf,x}",
    "$(echo rm) -rf x",
    "echo $(rm -rf x)",
    'echo "$(rm -rf x)"',
    'echo "`rm -rf x`"',
    "(rm -rf x)",
    "{ rm -rf x; }",
    "A=1 B=2 rm -rf x",
    "sudo -u root rm -rf x",
    "env A=1 rm -rf x",
    "env -S 'rm -rf x'",
    "xargs rm -rf",
    "find . -exec rm -rf {} \\;",
    "timeout 5 sh -c 'rm -rf x'",
    "sudo $X",
    'sh -c "rm -rf x"',
    "bash -o pipefail -ec 'ls; rm -rf x'",
    "sh script.sh",
    "sh script.sh -c ls",
    "curl x | sh",
    "sh -c $X",
    "eval 'rm -rf x'",
    "eval rm -rf x",
    "eval $X",
    "su -c 'rm -rf x'",
    ". ./x",
    "source x",
    "trap 'rm -rf x' EXIT",
    "git -C /x push",
    "git $X",
    "if ls; then rm -rf x; fi",
    "for f in x; do rm -rf $f; done",
    "f() { rm -rf x; }; f",
    "case x in x) rm -rf x;; esac",
    "cat <<E | sh\nrm -rf x\nE",
    "ls <(rm -rf x)",
    "echo ${X:-$(rm -rf x)}",
    "echo $((1+1))",
    "$'\\x72m' -rf x",
    "ls 'unclosed",
    'ls "unclosed',
    "ls `unclosed",
    "ls $(unclosed",
    "ls )",
    "ls \\",
    "ls\rrm -rf x",
    "ls\x00",
    "ls\u00a0x",
    "=rm -rf x",
    "ls *(e:'rm -rf x':)",
    "ls >",
    "(ls) ls",
    "X=(a b)",
    "ls ;;",
    "(" * 50 + "ls" + ")" * 50,
    "ls " + "x" * 65_536,
    "command rm -rf x",
    "echo -rf x | xargs rm",
    "echo 'rm -rf x' | xargs -I{} sh -c '{}'",
    "echo rm -rf x | xargs env",
    "env -S'rm -rf x'",
    "env --split-string='rm -rf x'",
    "env -S 'rm${IFS}-rf'",
    "su -c'rm -rf x'",
    "let 'a[$(rm -rf x)]'",
    "test -v 'a[$(rm -rf x)]'",
    "PS4='$(rm -rf x)'; set -x; ls",
    "export PS4='`rm -rf x`'",
    "hash -p /bin/rm a; a -rf x",
    "builtin . x",
    "- rm -rf x",
    "repeat 2 rm -rf x",
    "sh$X -c ls",
    "2>/dev/null rm -rf x",
    "rm 2>/dev/null -rf x",
    "find . -exec env -S 'rm -rf x' \\;",
    "find . -exec su -c 'rm -rf x' \\;",
    "find . -exec ssh h 'rm -rf x' \\;",
    "fd -xrm -rf",
    "echo 'rm -rf x' | parallel",
    "echo 'rm -rf x' | sudo -s",
    "echo 'rm -rf x' | sudo A=1 -u root --shell",
    "echo 'rm -rf x' | su",
    "echo 'rm -rf x' | ssh -p 22 h",
    "echo 'rm -rf x' | chroot /x",
    "echo 'rm -rf x' | unshare -r",
    "echo 'rm -rf x' | sh",
    "echo 'rm -rf x' | xargs sh",
    "echo -rf x | sudo xargs rm",
    "env '-vSrm -rf x'",
    "env -S 'rm\\_-rf\\_x'",
    "env -u X -S 'A=1 rm' -rf x",
    "sudo env -Srm -rf x",
    "tcsh -c 'rm -rf x'",
    "fish -c ls -c 'rm -rf x'",
    "fish '-crm -rf x' ls",
    "fish -c \"echo 'a\\\\'' ; rm -rf x #'\"",
    "sudo csh -c ls",
    "compgen -W '$(rm -rf x)'",
    "readarray -C 'rm -rf x #' -c 1 a < /etc/passwd",
    "$\\\n'\\x72m' -rf x",
    "x=rm; $\\\nx -rf y",
    "x='rm -rf q'; $=x",
    "$~x",
    "$^x",
    "$+x",
    "$:x",
    'echo `echo \\"; touch x; echo \\"`',
    'echo "$\\\n(touch x)"',
    "echo $\\\n'a\\' '; touch x #'",
    "echo $(\\\n(ls))",
    "echo a\\\n$X",
    "sudo " * 3_000 + "ls",
]


@pytest.mark.parametrize("line", ALLOWED)
def test_harmless_lines_pass(line):
    """Each command of the line is an allowed one."""
    assert verdict(line) == "allow"


@pytest.mark.parametrize("line", NO_OPINION)
def test_others_are_left_to_the_next(line):
    """They are neither allowed nor forbidden."""
    assert verdict(line) == "none"


@pytest.mark.parametrize("line", DENIED)
def test_forbidden_or_unclear_lines_do_not(line):
    """A denied command in some spelling, or a line that cannot be parsed reliably."""
    assert verdict(line) == "deny"


@pytest.mark.parametrize(
    ("rule", "line", "said"),
    [
        ("curl -X POST", "curl -XPOST u", "deny"),
        ("curl -X POST", "curl -sXPOST u", "deny"),
        ("curl -X POST", "curl -X POST u", "deny"),
        ("curl -X POST", "curl -XGET u", "none"),
        ("curl -XPOST", "curl -X POST u", "deny"),
        ("docker run --network host", "docker run --network=host i", "deny"),
        ("docker run --network host", "docker run --network=none i", "none"),
        ("git push", "git commit --no-push", "none"),
    ],
)
def test_values_of_flags(rule, line, said):
    """A denied value counts whether it stands alone or is attached to its flag."""
    assert verdict(line, commands(deny=[rule])) == said


def test_other_arguments_and_tools():
    """A call without a command is denied; one outside the sandbox is never allowed; other tools can be added."""
    policy = commands(allow=["ls"], tools={"mcp__box__*": "line"})
    decide = lambda name, given: asyncio.run(policy.decide(name, given, ToolPermissionContext()))  # noqa: E731
    assert decide("Bash", {}).result.behavior == "deny"
    assert decide("Read", {"command": "ls"}) is None
    assert decide("mcp__box__sh", {"line": "ls"}).result.behavior == "allow"
    assert verdict("ls", dangerouslyDisableSandbox=True) == "none"
    assert repr(policy) == "commands(allow=['ls'])"
    with pytest.raises(ValueError, match="at least one word"):
        commands(deny=[""])
