"""Runs shell lines in a sandbox that shares nothing: no network, no files but the system's, a plain user."""

import shutil
import subprocess

import pytest

BWRAP = shutil.which("bwrap")
_LINKS = [
    part
    for name in ("bin", "sbin", "lib", "lib32", "lib64")
    for part in ("--symlink", f"usr/{name}", f"/{name}")
]
_COMMAND = [
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
    *("--uid", "1000", "--gid", "1000", "--ro-bind", "/usr", "/usr", *_LINKS),
    *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"),
    *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8"),
]


def run_in_sandbox(driver, lines):
    """Run a bash script in the sandbox, with the lines as input, each ended by NUL; return what it prints."""
    if BWRAP is None:
        pytest.skip("bwrap is missing: these lines are run in a sandbox only")
    given = b"".join(line.encode() + b"\0" for line in lines)
    done = subprocess.run(
        [*_COMMAND, "--", "bash", "-c", driver], input=given, capture_output=True, timeout=280, check=False
    )
    said = done.stderr.decode(errors="replace")
    if done.returncode and said.startswith("bwrap:"):
        pytest.skip(f"bwrap cannot make a sandbox here: {said.strip()}")
    assert done.returncode == 0, said
    return done.stdout


_TEMPLATE = r"""
mkdir /tmp/template && cd /tmp/template
printf '#!/bin/sh\ntouch pwned\n' > evil && chmod +x evil
cp evil a.sh; printf 'import os\nos.system("touch pwned")\n' > a.py
printf 'all:\n\ttouch pwned\n' > Makefile
printf '{"scripts":{"evil":"touch pwned"}}' > package.json
printf 'touch pwned\n' > code; printf 'one\ntwo\n' > data; printf '1e touch pwned\n' > code.sed
cp -a /tmp/template /tmp/repository && cd /tmp/repository
{ git init -q . && git add data && git -c user.name=a -c user.email=a@b commit -qm one; } >/dev/null 2>&1
"""

_MARKING = (
    _TEMPLATE
    + r"""
n=0
while IFS= read -r -d '' line; do
  n=$((n+1)); case $line in *git*) from=repository;; *) from=template;; esac
  ( cp -a "/tmp/$from" "/tmp/case.$n" && cd "/tmp/case.$n" &&
    HOME=$PWD TMPDIR=$PWD exec timeout -s KILL 3 bash -c "$line" ) </dev/null >/dev/null 2>&1 &
  ((n <= 6)) || wait -n
done
wait
find /tmp/case.* -name pwned -printf '%H\n' | sort -u
"""
)


def lines_that_leave_a_mark(lines):
    """Run each line in a bash and a folder of its own, and return the lines that made a file `pwned`."""
    said = run_in_sandbox(_MARKING, lines).split()
    return {lines[int(folder.rpartition(b".")[2]) - 1] for folder in said}


_RECORDING = r"""
mkdir /tmp/bin /tmp/log && cd /tmp/bin
printf '#!/bin/sh\nprintf "%%s\\0" "$CASE" "${0##*/}" "$@" "\036" > "/tmp/log/$CASE.$$"\n' > stub && chmod +x stub
for name in NAMES; do ln stub "$name"; done
mkdir $(eval echo /tmp/case.{1..COUNT})
command_not_found_handle() { printf '%s\0' "$CASE" "not-found:$1" $'\036' > "/tmp/log/$CASE.$BASHPID"; }
export -f command_not_found_handle
{
  n=0
  while IFS= read -r -d '' line; do
    n=$((n+1))
    ( cd "/tmp/case.$n" && CASE=$n PATH=/tmp/bin exec /bin/bash -c "$line" ) </dev/null >/dev/null 2>&1 &
    ((n % 6)) || wait
  done
} 9>&1 | cat  # which ends when all that was started has ended
find /tmp/log -type f -exec cat {} +
find /tmp/case.* -mindepth 1 -printf '%H\0wrote-a-file\0\036\0'
"""


def programs_started(lines, names, shell="bash"):
    """Run each line where only stubs of these names exist; return the argv lists that each line started."""
    driver = _RECORDING.replace("NAMES", " ".join(names)).replace("COUNT", str(len(lines)))
    driver = driver.replace("/bin/bash", f"/bin/{shell}")
    said = run_in_sandbox(driver, lines).decode()
    started = [[] for _ in lines]
    for record in said.split("\0\x1e\0")[:-1]:
        number, *argv = record.split("\0")
        started[int(number.rpartition(".")[2]) - 1].append(argv)
    return started
