"""`commands(allow=...)`: which rules are valid, what they allow, and that ordinary work is allowed."""

import asyncio
import shutil
import subprocess

import pytest

from shared.shell_attacks import BROAD
from shared.shell_policy import verdict
from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import commands
from toolwire.permissions.shell.programs import BUILTINS, KEYWORDS, SAFE_BUILTINS

NEED_ARGUMENTS = """
find git tar awk gawk sed gsed xargs env sudo ssh rsync make npm npx docker kubectl vim.basic nvim less man python
python3 python3.12 /usr/bin/python3 node ruby perl5.36 bash sh zsh fish busybox timeout nice nohup parallel watch
cp mv ln tee dd curl wget gcc gcc-12 cargo go pip git.exe FIND split zip strace su newgrp script rename cmake java
""".split()  # noqa: SIM905 - a list of words


@pytest.mark.parametrize("name", NEED_ARGUMENTS)
def test_programs_that_start_others_need_arguments(name):
    """The name alone is refused when the policy is built, and the error says what to do."""
    with pytest.raises(ValueError, match=r"cannot be allowed with any arguments\. Write out the arguments"):
        commands(allow=[name])
    with pytest.raises(ValueError, match="cannot be allowed with any arguments"):
        commands(allow=["ls", [name]])


@pytest.mark.parametrize("name", sorted(BUILTINS - {"["}))
def test_builtins_that_evaluate_need_all_arguments(name):
    """Neither the name alone nor a wildcard can be allowed, only rules with all arguments written out."""
    for rule in (name, f"{name} *", f"{name} -v ..."):
        with pytest.raises(ValueError, match="is a shell builtin"):
            commands(allow=[rule])
    policy = commands(allow=[f"{name} x", f"{name} []"])
    assert verdict(f"{name} x", policy) == "allow"
    assert verdict(name, policy) == "allow"
    assert verdict(f"{name} x y", policy) == "none"


@pytest.mark.process
def test_every_builtin_of_bash_is_known():
    """A builtin that came with a newer bash belongs on one of the lists."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    said = subprocess.run([bash, "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True)
    assert set(said.stdout.split()) - {"time"} <= BUILTINS | SAFE_BUILTINS | KEYWORDS


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("if", "shell syntax, not a command"),
        ("%1", "shell syntax, not a command"),
        ("A=1", "shell syntax, not a command"),
        ("env *", "a wildcard after"),
        ("env A=1 ...", "a wildcard after"),
        ("python *", "a wildcard after"),
        ("python -c *", "a wildcard after"),
        ("python -m pdb *", "a wildcard after"),
        ("awk '{print}' *", "a wildcard after"),
        ("make *", "a wildcard after"),
        ("git config * *", "a wildcard after"),
        ("git -C x log ...", "a wildcard after"),
        ("sed *", "a wildcard after"),
        ("find . -exec * ;", "not known to be harmless"),
        ("find . [-exec] ...", "not known to be harmless"),
        ("git log [--output=*] ...", "not known to be harmless"),
        ("pytest [-p] ...", "not known to be harmless"),
        ("make [--eval=*]", "a wildcard after"),
        ("git log [--output=*]", "not known to be harmless"),
        ("declare [--x=*]", "is a shell builtin"),
        ("xargs", "with any arguments"),
        ("xargs sh -c x", "starts no other program"),
        ("xargs -I% grep", "starts no other program"),
        ("xargs cp", "starts no other program"),
        ("git status:*", "a whole word"),
        ("cat src/*", "a whole word"),
        ("ls ... x", "must be the last"),
        ("ls [-a", "not closed"),
        ("ls [a]", "may only contain options"),
        ("", "at least one word"),
        (["ls", ""], "at least one word"),
    ],
)
def test_rules_that_cannot_be_enforced(rule, why):
    """Each is refused when the policy is built."""
    with pytest.raises(ValueError, match=why):
        commands(allow=[rule])


def test_names_that_only_look_alike():
    """A leading `g` or trailing digits do not make an unlisted program a listed one."""
    for name in (
        "gzip",
        "gawkish",
        "base64",
        "sha256sum",
        "md5sum",
        "getent",
        "cat2",
        "gls",
        "findmnt",
        "gitk2x",
    ):
        assert verdict(f"{name} x", commands(allow=[name])) == "allow"


def test_a_string_is_not_a_list_of_rules():
    """Its letters would be taken for rules."""
    for given in ({"allow": "ls"}, {"deny": "rm -rf"}):
        with pytest.raises(ValueError, match="lists of rules"):
            commands(**given)


def test_a_relative_program_and_a_moving_folder():
    """`./x` may be any file of that name if the folder can be chosen."""
    for cd in ("cd", "cd *", "cd app"):
        with pytest.raises(ValueError, match="relative to the working directory"):
            commands(allow=[cd, "./gradlew test"])
    policy = commands(allow=["cd app []", "./mine"])
    assert verdict("cd app && ./mine x", policy) == "allow"
    assert verdict("cd app x", policy) == "none"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "line", "said"),
    [
        ("ls -l", "ls -l a b", "allow"),
        ("ls -l", "ls -la", "none"),
        ("ls -l *", "ls -l a", "allow"),
        ("ls -l *", "ls -l a b", "none"),
        ("ls -l *", "ls -l -a", "none"),
        ("ls -l *", "ls -l", "none"),
        ("ls -l *", "ls -l a*", "none"),
        ("ls -l ...", "ls -l a* b ''", "allow"),
        ("ls -l ...", "ls -l *", "none"),
        ("ls -l ...", "ls -l ''*", "none"),
        ("ls -l ...", "ls -l a '-R'", "none"),
        ("ls -l ...", "ls -l \\-R", "none"),
        ("ls []", "ls", "allow"),
        ("ls []", "ls a", "none"),
        ("ls [-a --sort=*] ...", "ls x -a --sort=size", "allow"),
        ("ls [-a --sort=*] ...", "ls --sort", "none"),
        ("cp [-r] * build/", "cp -r a build/", "allow"),
        ("cp [-r] * build/", "cp a -r build/", "allow"),
        ("cp [-r] * build/", "cp a build/ -r", "allow"),
        ("cp [-r] * build/", "cp -f a build/", "none"),
        ("cp [-r] * build/", "cp a b build/", "none"),
        ("cp [-r] * build/", "cp a out/", "none"),
        ("npm test", "npm test", "allow"),
        ("npm test", "npm test x", "none"),
        ("git status", "git status -s src", "allow"),
        ("git status", "git  'status' --short", "allow"),
        ("git status", "git status -x", "none"),
        ("git commit -m *", "git commit -m 'Say \"hi\"; $x'", "allow"),
        ("git commit -m *", "git commit -m x -n", "none"),
        ("git commit", "git commit -m x", "none"),
        ("git log --oneline ...", "git log --oneline -5 HEAD~3", "allow"),
        ("git log --oneline ...", "git log -5 --oneline", "none"),
        ("git reset ...", "git reset HEAD~1 a", "allow"),
        ("git reset ...", "git reset --hard", "none"),
        ("git reset [--soft] *", "git reset --soft HEAD~1", "allow"),
        ("find .", "find . -name '*.py' -not -path './x/*' -mtime -7", "allow"),
        ("find .", "find . \\( -name a -o -name b \\) -print0", "allow"),
        ("find .", "find . -delete", "none"),
        ("find . -delete", "find . -delete", "allow"),
        ("find . -delete", "find . -delete -name a", "none"),
        ("find .", "find / -name a", "none"),
        ("sort", "sort -t, -k2,2nr -u a", "allow"),
        ("sort", "sort -uo x a", "none"),
        ("sed -n", "sed -n 10,20p a", "allow"),
        ("sed -n", "sed -n '$p' a b", "allow"),
        ("sed -n", "sed -n 1,2w a", "none"),
        ("sed -n", "sed -n *p", "none"),
        ("sed -n s/a/b/p x", "sed -n s/a/b/p x", "allow"),
        ("sed -n s/a/b/p", "sed -n s/a/b/p x", "none"),
        ("python tool.py", "python tool.py --any *.x", "allow"),
        ("python tool.py", "python -i tool.py", "none"),
        ("python -m mypkg", "python -m mypkg --any -c x", "allow"),
        ("python -m mypkg.cli", "python -m mypkg.cli --any", "allow"),
        ("python -m mypy", "python -m mypy --strict src", "allow"),
        ("python -m mypy", "python -m mypy --python-executable=./evil a.py", "none"),
        ("python -m pylint", "python -m pylint --init-hook=x a.py", "none"),
        ("python -m uv", "python -m uv run evil", "none"),
        ("python -m torch.distributed.run", "python -m torch.distributed.run --no-python evil", "none"),
        ("python -m py.test", "python -m py.test -p evil", "none"),
        ("mypy", "mypy @options", "none"),
        ("git log", "git log --format=%h", "allow"),
        ("git log", "git log '--format=%+G?'", "none"),
        ("git log", "git log '--pretty=% GK'", "none"),
        ("git branch", "git branch -M other master", "none"),
        ("echo", "echo 1&>/dev/null", "none"),
        ("echo", "echo 1 &>/dev/null", "allow"),
        ("bash build.sh", "cat a | bash build.sh -x", "allow"),
        ("bash -s", "bash -s", "allow"),
        ("bash -s", "cat a | bash -s", "none"),
        ("ssh host", "cat a | ssh host", "none"),
        ("awk '{print $1}'", "cat a | awk '{print $1}'", "allow"),
        ("xargs -0 grep", "find | xargs -0 grep -l a", "none"),
        ("xargs -0 grep", "xargs -0 grep -l a", "allow"),
        (["grep", "a.*b"], "grep 'a.*b' x", "allow"),
        (["grep", "a.*b"], "grep a.*b x", "none"),
        ("ls", "'ls' \"a\"", "allow"),
        ("ls", "LS", "none"),
        ("echo", "echo a=b --x=y a:b c,d @e +f %g", "allow"),
        ("echo", "echo =ls", "none"),
        ("echo", "echo 'é\u2028'", "allow"),
        ("echo", "echo é", "none"),
        ("echo", "echo '\ud800'", "none"),
        ("echo", "echo ^a", "none"),
        ("echo", "echo a;&>/dev/null echo b", "none"),
        ("echo", "echo a |& echo b", "none"),
        ("echo", "echo a &\\\n>/dev/null echo b", "none"),
        ("echo", "echo a \\\n &>/dev/null", "allow"),
        ("echo", "echo a &>/dev/null && echo b", "allow"),
        ("echo", "echo a &>/dev/null b", "none"),
        ("uniq", "uniq -c a", "allow"),
        ("uniq", "uniq a b", "none"),
        ("tree", "tree -L 2 src", "allow"),
        ("tree", "tree -o x", "none"),
        ("echo", "", "none"),
        ("echo", "# only a note", "none"),
        ("echo", "echo a &&", "none"),
        ("echo", "; echo a", "none"),
        ("echo", ">/dev/null", "none"),
        ("echo", "echo a;" * 1_001, "none"),
    ],
)
def test_which_lines_a_rule_allows(rule, line, said):
    """Rules with words, gaps, options and wildcards, and lines with pipes, quotes and redirections."""
    assert verdict(line, commands(allow=[rule, "cat"])) == said


WORK = [
    *BROAD,
    *(
        "touch",
        "rm",
        "ruff",
        "tsc",
        "eslint",
        "prettier",
        "mypy",
        "uv run pytest",
        "npm install",
        "npm ci",
        "npm run lint",
    ),
    *(
        "node --test",
        "git push origin main",
        "git checkout ...",
        "git restore ...",
        "git rev-parse",
        "git ls-files",
    ),
    *(
        "git blame",
        "git remote -v",
        "cargo build",
        "go build",
        "go vet",
        "make lint",
        "xargs wc",
        "mv * *",
        "curl -s *",
    ),
    *("python3 scripts/build.py", "python3 -m mypkg"),
]
HARMLESS = """
ls
ls -la src
ls -la src/ tests/ 2>/dev/null
ls *.md
cat README.md
cat package.json | head -50
cat src/app.py | grep -n "def main"
head -100 src/app.py
tail -n 20 logs/app.log
tail -50 "logs/my app.log"
wc -l src/*.py
wc -l src/*.py | sort -rn | head -20
grep -rn "TODO" src
grep -rn 'import os' --include='*.py' src | head
grep -n "class Foo\\|class Bar" src/app.py
grep -c error log.txt || true
grep -rn "foo(" src/ | wc -l
rg -n "parse_args" src
rg -l TODO -g '*.ts' src
rg --files src | sort
rg -n -A 3 -B 3 "def run" src/app.py
find . -name '*.py'
find . -name "*.test.ts" -not -path "./node_modules/*"
find . -type f -name '*.md' | head -20
find src -maxdepth 2 -type d
find . -type f -size +1M
find . -name '*.pyc' | wc -l
sed -n 1,80p src/app.py
sed -n '120,180p' src/app.py
git status
git status --short
git status -sb
git diff
git diff --stat
git diff HEAD~1 -- src/app.py
git diff --cached
git diff main...HEAD --name-only
git log --oneline -10
git log --oneline --graph --all | head -30
git log -p -1 -- src/app.py
git log --since="2 weeks ago" --author=Ann --format='%h %s'
git show HEAD
git show HEAD:src/app.py
git show --stat HEAD~2
git branch
git branch -a
git branch --show-current
git add src/app.py tests/test_app.py
git add src/*.py
git add .
git commit -m "Fix the parser"
git add . && git commit -m 'Say what changed, and why'
git checkout feature
git restore src/app.py
git rev-parse HEAD
git rev-parse --abbrev-ref HEAD
git ls-files | grep test
git blame -w src/app.py
git remote -v
git push origin main
git stash
cd src && ls
cd /srv/app && npm test
npm test
npm test 2>&1 | tail -40
npm run build
npm run lint && npm test
npm install
npm ci
npm run build 2>&1 | grep -i error
python -m pytest
python -m pytest tests -q
python -m pytest tests/test_app.py -x -k "parse and not slow"
python -m pytest tests -q --tb=short 2>&1 | tail -30
pytest -q
pytest tests/test_app.py::test_one -vv
pytest --lf -x
uv run pytest -q tests
python3 scripts/build.py --release
python3 -m mypkg --help
python3 --version && node --version
ruff check . && ruff format --check .
mypy src --strict
eslint src --fix
prettier --check 'src/**/*.ts'
tsc --noEmit
node --test
cargo test
cargo build --release
cargo test parser -- --nocapture
go test ./...
go vet ./... && go build ./...
make test
make lint
mkdir -p build/out
touch src/new.py
rm -f build/old.o
cp src/a.txt build/
cp -r assets build/
mv old.py new.py
echo "done"
echo 'a b' | tr ' ' '\\n'
pwd && ls
which python3
type node
date
du -sh src | cut -f1
df -h
ps aux | grep node
diff a.txt b.txt
jq '.scripts' package.json
cat package.json | jq -r .version
tree -L 2 src
stat src/app.py
file build/app
printenv PATH
uname -a
sort names.txt | uniq -c | sort -rn
cut -d, -f1 data.csv | sort -u
curl -s http://localhost:3000/health
grep -rl foo src | xargs wc -l
grep -rl foo src | xargs grep -n bar
cat data.txt | awk '{print $1}' | sort
docker ps
ls src \\
  tests
# see what is there
seq 1 5
sleep 1; echo ok
""".strip().replace("\\\n", "\\\0")


@pytest.mark.parametrize(
    "line", [line.replace("\\\0", "\\\n") for line in HARMLESS.split("\n") if line[0] != "#"]
)
def test_ordinary_lines_are_allowed(line):
    """The list is as one would write it for a coding agent; the same lines pass with a comment in front."""
    policy = commands(allow=WORK, deny=["rm -rf"])
    assert verdict(line, policy) == "allow"
    assert verdict(f"# see what is there\n{line}", policy) == "allow"


LONG = {
    "one word": "x" * 65_000,
    "words": "x " * 32_000,
    "quotes": "'a'" * 21_000,
    "backslashes": "\\a" * 32_000,
    "commands": "ls;" * 21_000,
    "wrapped": "sudo " + "rm " * 2_400,
    "wrappers": "sudo " * 2_400,
    "wrapped texts": "sudo " + "'a b' " * 10_000,
    "wrapped options": "sudo " + "-x='a;b' " * 7_000,
    "nested wrappers": "sudo " + "'sudo \"a b\" c' " * 4_000,
    "evals": "eval " * 13_000,
    "shells": "bash " + "-e " * 21_000,
    "sh -c": "sudo " + "sh -c 'sudo a' " * 4_000,
    "env": "env " + "A=1 " * 16_000 + "ls",
    "substitutions": "echo " + "$(a) " * 13_000,
    "backticks": "echo " + "`a` " * 16_000,
    "long backticks": "echo `" + "a " * 32_000 + "`",
    "arithmetic": "echo " + "$((" * 21_000,
    "open brackets": "(" * 65_000,
    "here-documents": "cat <<E\n" * 8_000,
    "open quote": "echo '" + "a" * 65_000,
    "open double quote": 'echo "' + "\\a" * 32_000,
    "redirections": "ls " + ">/dev/null " * 5_900,
    "blanks": "ls >" + " " * 65_000,
    "comments": "#" * 65_000,
    "continued": "ls" + " \\\n" * 21_000,
    "wildcards": "ls " + "*" * 65_000,
    "find": "find . " + "-name a " * 8_000,
    "over the limit": "ls " + "a" * 96_000,
}


@pytest.mark.slow
@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", LONG)
def test_no_line_blocks_the_event_loop(name):
    """Before, some of these took half a minute; a thousand times the usual line takes a fraction of a second."""
    policy = commands(allow=["ls", "find ...", "echo", "sort"], deny=["rm -rf", "git push", "a b", "x"])
    given = {"command": LONG[name]}
    asyncio.run(policy.decide("Bash", given, ToolPermissionContext()))


def test_a_line_that_is_too_long_is_denied():
    """An allow list and a deny list both deny it, whatever is in it."""
    for policy in (commands(allow=["ls"]), commands(deny=["rm"])):
        assert verdict("ls " + "a" * 65_533, policy) in ("allow", "none")
        assert verdict("ls " + "a" * 65_534, policy) == "deny"
