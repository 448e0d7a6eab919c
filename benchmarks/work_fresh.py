"""Runs a module in a fresh Python process, in a clean environment and with the library of any checkout."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import HERE, make_environment

LIMIT = 900.0  # seconds after which a run is aborted


@contextmanager
def run_fresh(
    module: str, *arguments: str, tree: Path | None = None, under: Sequence[str] = ()
) -> Iterator[tuple[str, Path]]:
    """Run a module of the benchmarks. Yields its output, and the temporary folder that it ran in.

    With `tree`, the library is imported from that checkout. `under` is a command to run Python under, such as
    valgrind; `{folder}` in it stands for the folder.
    """
    with tempfile.TemporaryDirectory(prefix="work-") as name:
        folder = Path(name)
        environment = make_environment(folder)
        if tree is not None:
            environment["PYTHONPATH"] = f"{tree.resolve() / 'src'}:{HERE.parent}"
        prefix = [each.format(folder=folder) for each in under]
        done = subprocess.run(  # noqa: S603
            [*prefix, sys.executable, "-m", f"benchmarks.{module}", *arguments],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{module} failed: {done.stderr[-2000:]}")
        yield done.stdout, folder
