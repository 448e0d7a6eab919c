"""Fuzzes one target in this process with atheris: `fuzz_one.py NAME SECONDS SEED FINDINGS CORPUS SEEDS`.

A broken promise does not end it: it keeps the shortest input for each place that raised, and goes on.
"""

import hashlib
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import atheris

from fuzz.findings import complaint_of

LONGEST: Final = 2_000
"""Bytes of an input."""
GROWN: Final = 64 * 1024
SLOW: Final = 20.0
"""CPU seconds that no input may need, small or grown; the code under test is several times slower here."""
_HANGS: Final = 120
_NOW_AND_THEN: Final = 20_000


class Fuzzer:
    """Gives inputs to a target and keeps those that break a promise."""

    def __init__(self, name: str, findings: Path, seeds: Path) -> None:
        with atheris.instrument_imports(include=["toolwire"]):
            from fuzz.fuzz_targets import load  # noqa: PLC0415 - imports the code that must be instrumented

            self._target = load(name)
            for seed in sorted(seeds.iterdir()):  # so that late imports are instrumented too
                complaint_of(self._target.check, seed.read_bytes())
        self._findings = findings
        self._count = 0
        self._costliest = 1e-5  # CPU seconds per byte

    def one_input(self, data: bytes) -> None:
        """Judge one input; called by atheris."""
        self._count += 1
        cost = self._judge(self._target.check, data, "") / (len(data) + 100)
        if cost > 2 * self._costliest or self._count % _NOW_AND_THEN == 0:
            self._costliest = max(cost, self._costliest)
            self._judge(self._target.run, self._target.grow(data, GROWN), "grown-")

    def mutate(self, data: bytes, longest: int, seed: int) -> bytes:
        """Make a new input of an old one; called by atheris."""
        made = self._target.mutate(data, random.Random(seed))
        return bytes(atheris.Mutate(data, longest)) if made is None else made[:longest]

    def _judge(self, function: Callable[[bytes], None], data: bytes, kind: str) -> float:
        start = time.thread_time()
        complaint = complaint_of(function, data)
        spent = time.thread_time() - start
        if complaint is not None:
            self._keep(data, kind + complaint)
        elif spent > SLOW:
            self._keep(data, f"{kind}slow")
        return spent

    def _keep(self, data: bytes, complaint: str) -> None:
        name = f"{complaint[:60]}-{hashlib.sha1(complaint.encode()).hexdigest()[:6]}"  # noqa: S324 - a short name
        place = self._findings / "".join(char if char.isalnum() or char in "-_." else "_" for char in name)
        if not place.exists() or len(data) < place.stat().st_size:
            place.write_bytes(data)


def main() -> None:
    """Fuzz until the time is over; then libFuzzer ends the process."""
    logging.disable()  # logging would take half of the time
    name, seconds, seed, findings, corpus, seeds = sys.argv[1:]
    fuzzer = Fuzzer(name, Path(findings), Path(seeds))
    flags = [
        *(
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={LONGEST}",
            f"-timeout={_HANGS}",
            "-rss_limit_mb=3000",
        ),
        *(
            f"-artifact_prefix={findings}/",
            "-report_slow_units=100000",
            "-print_final_stats=1",
            "-verbosity=0",
            "-len_control=20",
        ),
    ]
    atheris.Setup([sys.argv[0], *flags, corpus, seeds], fuzzer.one_input, custom_mutator=fuzzer.mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
