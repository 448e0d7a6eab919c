"""Where the time of the hot paths goes, by layer: started by `profiles`.

The time is the least of many repeats, undisturbed. The shares are from a second go, in which a signal comes every
fifth of a millisecond or so and the Python frame that it finds is noted: the innermost whose module is in the table
of layers, so that what a layer calls in C or in the standard library is its own.
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
SECONDS = 1.0  # of samples, for each path
_EVERY = 0.000211  # in step with nothing

# The first that fits is it.
_LAYERS = (
    (r"toolwire\._wire\.(lines:_?encode|control:(accept|refuse|ask)\b)", "frames to bytes"),
    (r"toolwire\._wire\.lines", "bytes to frames"),
    (r"toolwire\.(_wire\.parse|messages|blocks|_record|_system|_notices|_extras)", "frames to messages"),
    (r"toolwire\.(_wire|_session|_taps|_query|_connect|client|_stderr)\b", "session and control"),
    (r"toolwire\._threads|concurrent\.|threading:", "worker threads"),
    (r"asyncio[.:]|selectors:|toolwire\._tasks", "tasks and event loop"),
    (r"anyio[.:]|sniffio[.:]", "anyio: scopes, events"),
    (r"toolwire\.tools\.(_typed|_raw|schema|parameters|_typeddict)\b", "arguments checked"),
    (r"toolwire\.tools\.(results|values|content|block)\b", "result made"),
    (r"toolwire\.(_servers|_jsonrpc|wrap|tools)\b", "servers, JSON-RPC, the call"),
    (r"toolwire\.(hooks|permissions|_handlers|elicitation)\b", "hooks and permissions"),
    (r"toolwire\.mcp\b", "bridge and serving, ours"),
    (r"mcp(_types)?[.:]", "the mcp package"),
    (r"starlette[.:]|uvicorn[.:]|sse_starlette[.:]", "web framework"),
    (r"prometheus_client[.:]", "metrics"),
    (r"toolwire\._tracing|opentelemetry[.:]", "tracing"),
    (r"toolwire\b", "the rest of toolwire"),
    (r"benchmarks[.:]", "user's function, and measuring"),
)
LAYERS = [layer for _pattern, layer in _LAYERS]


class Sampler:
    """Notes where the program is."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._known: dict[CodeType, str | None] = {}
        self._looking = False

    def note(self, _number: int, frame: FrameType | None) -> None:
        """The handler. One that comes while we still look is left out: it would only find ourselves."""
        if not self._looking:
            self._looking = True
            self._look(frame)
            self._looking = False

    def _look(self, frame: FrameType | None) -> None:
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith("<frozen importlib"):  # loaded once, which is no part of a unit
                return
            if code not in self._known:
                self._known[code] = _layer(f"{frame.f_globals.get('__name__', '')}:{code.co_name}")
            if (layer := self._known[code]) is not None:
                self.seen[layer] += 1
                return
            frame = frame.f_back


_COMPILED = [(re.compile(pattern), layer) for pattern, layer in _LAYERS]


def _layer(name: str) -> str | None:
    return next((layer for pattern, layer in _COMPILED if pattern.match(name)), None)


async def sampled(path: HotPath) -> dict[str, Any]:
    """The time of a unit in microseconds, and samples by layer."""
    sampler, best = Sampler(), float("inf")
    async with path.opened() as turn:
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
    found = {}
    for name, path in PATHS.items():
        try:
            found[name] = asyncio.run(sampled(path))
        except Exception as error:  # noqa: BLE001 - an older tree may lack a path; the others are still of use
            sys.stderr.write(f"{name}: {error!r}\n")
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
