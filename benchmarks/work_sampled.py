"""Measures how the time of the hot paths is distributed over layers. Started by `profiles`.

The time is the minimum of many repetitions, without sampling. The shares are from a second run, in which a signal
arrives about every fifth of a millisecond and the current Python frame is recorded: the innermost one whose module
is in the table of layers. What a layer calls in C or in the standard library therefore counts as its own.
"""

import asyncio
import json
import re
import signal
import sys
import time
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from benchmarks.work_counts import WARM
from benchmarks.work_paths import PATHS, HotPath

REPEATS = 25
SECONDS = 1.0  # of sampling, for each path
_EVERY = 0.000211  # seconds between signals, chosen to be in step with nothing

# Patterns of `module:function`. The first that matches decides the layer.
LAYER_PATTERNS = (
    (r"toolwire\._protocol\.(lines:_?encode|control:(respond|respond_error|request)$)", "frames to bytes"),
    (r"toolwire\._protocol\.lines", "bytes to frames"),
    (r"toolwire\.(_protocol\.parse|messages|_support\.record)\b", "frames to messages"),
    (r"toolwire\._(conversation\.mcp_router|protocol\.jsonrpc)\b", "servers, JSON-RPC, the call"),
    (r"toolwire\.(_protocol|_conversation|_transport|client)\b", "session and control"),
    (r"toolwire\._support\.threads|concurrent\.|threading:", "worker threads"),
    (r"asyncio[.:]|selectors:|toolwire\._support\.(tasks|waiting)\b", "tasks and event loop"),
    (r"anyio[.:]|sniffio[.:]", "anyio: scopes, events"),
    (r"toolwire\.tools\.schema\b", "arguments checked"),
    (r"toolwire\.tools\.results\b", "result made"),
    (r"toolwire\.(wrap|tools)\b", "servers, JSON-RPC, the call"),
    (r"toolwire\.(hooks|permissions)\b", "hooks and permissions"),
    (r"toolwire\.mcp\b", "bridge and serving, ours"),
    (r"mcp(_types)?[.:]", "the mcp package"),
    (r"starlette[.:]|uvicorn[.:]|sse_starlette[.:]", "web framework"),
    (r"prometheus_client[.:]", "metrics"),
    (r"toolwire\._support\.tracing|opentelemetry[.:]", "tracing"),
    (r"toolwire\b", "the rest of toolwire"),
    (r"benchmarks[.:]", "user's function, and measuring"),
)
LAYERS = list(dict.fromkeys(layer for _pattern, layer in LAYER_PATTERNS))


class Sampler:
    """Counts samples by the layer that the program is in."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._known: dict[CodeType, str | None] = {}
        self._is_recording = False

    def note(self, _number: int, frame: FrameType | None) -> None:
        """Handle the signal. A signal during the handler is ignored, because it would only find the handler."""
        if not self._is_recording:
            self._is_recording = True
            self._record_layer(frame)
            self._is_recording = False

    def _record_layer(self, frame: FrameType | None) -> None:
        """Count a sample for the layer of the innermost frame that has one."""
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith("<frozen importlib"):
                return  # an import happens once, so it is not part of a unit
            if code not in self._known:
                self._known[code] = match_layer(f"{frame.f_globals.get('__name__', '')}:{code.co_name}")
            if (layer := self._known[code]) is not None:
                self.seen[layer] += 1
                return
            frame = frame.f_back


_COMPILED = [(re.compile(pattern), layer) for pattern, layer in LAYER_PATTERNS]


def match_layer(name: str) -> str | None:
    """Return the layer of a function, given as `module:function`."""
    return next((layer for pattern, layer in _COMPILED if pattern.match(name)), None)


async def sample_path(path: HotPath) -> dict[str, Any]:
    """Return the time of one unit in microseconds, and the number of samples by layer."""
    sampler, best = Sampler(), float("inf")
    async with path.open() as turn:
        await turn(min(WARM, path.units))
        for _ in range(REPEATS):
            begun = time.process_time()
            await turn(path.units)
            best = min(best, (time.process_time() - begun) / path.units)
        signal.signal(signal.SIGALRM, sampler.note)
        signal.setitimer(signal.ITIMER_REAL, _EVERY, _EVERY)
        try:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                await turn(path.units)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return {"microseconds": best * 1e6, "layers": sampler.seen}


def main() -> None:
    """Measure all paths and print the result as JSON."""
    found = {}
    for name, path in PATHS.items():
        try:
            found[name] = asyncio.run(sample_path(path))
        except Exception as error:  # noqa: BLE001 - an older checkout may lack a path; the others are still useful
            sys.stderr.write(f"{name}: {error!r}\n")
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
