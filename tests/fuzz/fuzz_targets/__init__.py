"""The targets of fuzzing. A target is a module with four functions, and is found by its name.

- `check(data)` gives the bytes to the code under test and raises if a promise is broken. It must not depend on
  anything but the bytes, so that a finding can be replayed.
- `run(data)` only gives them to the code under test, to measure how long that takes.
- `grow(data, size)` makes an input of about that size out of a small one, to measure how the time grows.
- `mutate(data, random)` makes another input that is likely to pass the first check, or returns None to leave
  it to the fuzzer.
"""

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

NAMES: Final = ("http", "lines", "parse", "rpc", "schema", "shell")


@dataclass(frozen=True)
class Target:
    """A target and its functions."""

    name: str
    check: Callable[[bytes], None]
    run: Callable[[bytes], None]
    grow: Callable[[bytes, int], bytes]
    mutate: Callable[[bytes, random.Random], bytes | None]


def load(name: str) -> Target:
    """Import a target, and with it the code under test."""
    module: Any = importlib.import_module(f"fuzz.fuzz_targets.{name}")
    return Target(name, module.check, module.run, module.grow, module.mutate)
