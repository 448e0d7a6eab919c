"""What is fuzzed. A target is a module with four functions, and is found by its name.

- `check(data)` gives the bytes to the code under test and raises if a promise is broken. It must not depend on
  anything but the bytes, so that a finding can be replayed.
- `run(data)` only gives it to the code under test, to see how long that takes.
- `grow(data, size)` makes an input of about that size out of a small one, to see how the time needed grows.
- `mutate(data, random)` makes another input that is likely to get past the first check, or returns None to leave
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
    """One thing that is fuzzed."""

    name: str
    check: Callable[[bytes], None]
    run: Callable[[bytes], None]
    grow: Callable[[bytes, int], bytes]
    mutate: Callable[[bytes, random.Random], bytes | None]


def load(name: str) -> Target:
    """Import a target, and with it the code under test."""
    module: Any = importlib.import_module(f"fuzz.fuzz_targets.{name}")
    return Target(name, module.check, module.run, module.grow, module.mutate)
