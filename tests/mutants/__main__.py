"""`make mutants`: puts each deliberate bug into a copy of the sources, one at a time; the named tests must fail.

First all of these tests run without a bug, and must pass. A test that only hangs has not caught the bug: it must
fail by a timeout of its own. Exits with 1 if a bug survives or no longer applies.

`make mutants ARGS="lost-reply ..."` tries only these.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.applying import Definitions, Mutant, NoLongerAppliesError, apply
from mutants.bugs import MUTANTS

_ROOT: Final = Path(__file__).parents[2]
_AT_ONCE: Final = 2
_SECONDS: Final = 60
"""That a test may take. Its own bound is to come first."""
_FAILED: Final = 1
"""The exit code of pytest for tests that ran and failed; anything else is an accident."""


@dataclass
class Run:
    """How pytest ended."""

    code: int
    text: str
    seconds: float

    @property
    def caught(self) -> bool:
        return self.code == _FAILED and "FAILED " in self.text and not self.hung

    @property
    def hung(self) -> bool:
        return "Timeout (>" in self.text or "+++ Timeout +++" in self.text


def main() -> int:
    """Try the named mutants, or all."""
    wanted = [each for each in MUTANTS if each.name in sys.argv[1:] or not sys.argv[1:]]
    if unknown := set(sys.argv[1:]) - {each.name for each in MUTANTS}:
        print(f"no such mutant: {', '.join(sorted(unknown))}")
        return 2
    with tempfile.TemporaryDirectory(prefix="toolwire-mutants-") as folder:
        return _run_all(wanted, Path(folder))


def _run_all(wanted: list[Mutant], folder: Path) -> int:
    tests = Definitions(_ROOT / "tests", "test_*.py")
    clean = folder / "clean"
    shutil.copytree(_ROOT / "src", clean, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        chosen = sorted({test for each in wanted for test in _tests(each, tests)})
    except NoLongerAppliesError as error:
        print(error)
        return 1
    before = _pytest(clean, chosen, _SECONDS * len(chosen), workers=_AT_ONCE)
    if before.code != 0:
        print(f"The tests fail without any bug:\n{before.text}")
        return 1
    print(f"{len(chosen)} tests pass without a bug ({before.seconds:.0f} s)")
    source = Definitions(clean)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = list(pool.map(lambda each: _try(each, source, folder / each.name, tests), wanted))
    print(f"{'mutant':<32}{'':<10}{'seconds':>8}")
    for each, (said, seconds, _) in zip(wanted, results, strict=True):
        print(f"{each.name:<32}{said:<10}{seconds:>8.1f}")
    alive = [text for said, _, text in results if said != "caught"]
    print(f"{len(wanted) - len(alive)} of {len(wanted)} mutants caught")
    for text in alive:
        print(text)
    return int(bool(alive))


def _try(mutant: Mutant, source: Definitions, copy: Path, tests: Definitions) -> tuple[str, float, str]:
    """Return the outcome of a mutant, its duration in seconds, and the text to show if it was not caught."""
    try:
        file, text = apply(mutant, source)
    except NoLongerAppliesError as error:
        return "stale", 0.0, str(error)
    shutil.copytree(source.folder, copy)  # with its compiled files
    (copy / file.relative_to(source.folder)).write_text(text)
    run = _pytest(copy, _tests(mutant, tests), 2 * _SECONDS)
    shutil.rmtree(copy)
    said = "caught" if run.caught else "hung" if run.hung else "survived" if run.code == 0 else "error"
    return said, run.seconds, f"--- {mutant.name}: {said}\n{run.text[-3_000:]}"


def _tests(mutant: Mutant, tests: Definitions) -> list[str]:
    return [tests.test(each) for each in mutant.tests]


def _pytest(source: Path, tests: list[str], seconds: float, workers: int = 0) -> Run:
    """Run tests on a copy of the sources, in a process group of their own, which is killed at the end."""
    code = (
        "import sys, pytest; from importlib.util import find_spec;"
        "assert find_spec('toolwire').origin.startswith(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"
    )
    options = ["-x", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=short", f"--timeout={_SECONDS}"]
    options += ["-n", str(workers)]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(source), *options, *tests],
        cwd=_ROOT,
        env={**os.environ, **_settings(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        text = "+++ Timeout +++"
    _end_group(process)
    return Run(process.returncode, text, time.monotonic() - began)


def _settings(source: Path) -> dict[str, str]:
    kept = str(source.parent / "hypothesis")  # what it stores about a bug must not reach ordinary runs
    return {"PYTHONPATH": str(source), "PYTHONHASHSEED": "0", "HYPOTHESIS_STORAGE_DIRECTORY": kept}


def _end_group(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
