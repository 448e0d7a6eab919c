"""`make fuzz`: fuzzes each target for a while, and prints a table. Exits with 1 if a promise was broken.

- `make fuzz`: all targets and the model, each for FUZZ_SECONDS (60). FUZZ_SEED=1 tries the same inputs each
  time, as far as the time goes.
- `make fuzz ARGS="shell schema"`: only these.
- `make fuzz ARGS="--replay FILE..."`: inputs of tests/fuzz/corpus/TARGET or build/fuzz/TARGET once more.
"""

import os
import random
import re
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fuzz.findings import minimise
from fuzz.fuzz_targets import NAMES, load

_HERE: Final = Path(__file__).parent
_WORK: Final = Path("build/fuzz")
_AT_ONCE: Final = 2
_MODEL: Final = "model"


@dataclass
class Outcome:
    """The outcome of fuzzing one target."""

    name: str
    runs: int
    findings: list[Path]
    broken: str = ""
    """Why it could not run to its end."""


def main() -> int:
    """Fuzz, or replay inputs."""
    given = sys.argv[1:]
    if given[:1] == ["--replay"]:
        return _replay([Path(each) for each in given[1:]])
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    seed = int(os.environ.get("FUZZ_SEED", "0")) or random.randrange(1, 2**31)
    names = given or [*NAMES, _MODEL]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        outcomes = list(pool.map(lambda name: _fuzz(name, seconds, seed), names))
    print(f"{'target':<10}{'runs':>12}{'findings':>10}   ({seconds} s each, seed {seed})")
    for each in outcomes:
        print(
            f"{each.name:<10}{each.runs:>12,}{len(each.findings):>10}{'   ' + each.broken if each.broken else ''}"
        )
    for finding in (finding for each in outcomes for finding in each.findings):
        print(f'broken promise: make fuzz ARGS="--replay {finding}"')
    return int(any(each.findings or each.broken for each in outcomes))


def _fuzz(name: str, seconds: int, seed: int) -> Outcome:
    if name == _MODEL:
        return _run_model(seconds, seed)
    work = _WORK / name
    findings, corpus, seeds = work / "findings", work / "corpus", _HERE / "corpus" / name
    for folder in (findings, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    for old in findings.iterdir():
        old.unlink()
    folders = map(str, (findings, corpus, seeds))
    command = [sys.executable, "-m", "fuzz.fuzz_one", name, str(seconds), str(seed), *folders]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "TMPDIR": str(work.resolve()), "PYTHONHASHSEED": "0"},
    )
    (work / "log").write_text(done.stdout + done.stderr)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    found = sorted(findings.iterdir())
    for each in found:
        if not each.name.startswith(("grown-", "slow", "timeout-", "oom-")):
            each.write_bytes(minimise(load(name).check, each.read_bytes()))
    broken = "" if done.returncode == 0 and runs else f"ended with {done.returncode}, see {work / 'log'}"
    return Outcome(name, int(runs[1]) if runs else 0, found, "" if found else broken)


def _run_model(seconds: int, seed: int) -> Outcome:
    """Run the model of the control protocol, in a process of its own."""
    command = [sys.executable, "-m", "fuzz.fuzz_model", str(seconds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    log = _WORK / _MODEL / "log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + done.stderr)
    runs = re.search(r"(\d+) sequences", done.stdout)
    return Outcome(
        _MODEL, int(runs[1]) if runs else 0, [], "" if done.returncode == 0 else f"failed, see {log}"
    )


def _replay(files: list[Path]) -> int:
    failed = 0
    for file in files:
        name = next(part for part in reversed(file.resolve().parts) if part in NAMES)
        try:
            load(name).check(file.read_bytes())
        except Exception:  # noqa: BLE001 - shown
            failed = 1
            print(f"{file}: broken\n{traceback.format_exc()}")
        else:
            print(f"{file}: fine")
    return failed


if __name__ == "__main__":
    sys.exit(main())
