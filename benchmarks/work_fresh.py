"""A fresh Python for what is counted: nothing of the caller's environment, and the library of any checkout."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import HERE, environment

LIMIT = 900.0  # seconds that one run may take


@contextmanager
def fresh(
    module: str, *arguments: str, tree: Path | None = None, under: Sequence[str] = ()
) -> Iterator[tuple[str, Path]]:
    """What a module of ours printed, and the folder that it ran in.

    With `tree` the library is that checkout's; `under` is a command to run it with, `{folder}` in it the folder.
    """
    with tempfile.TemporaryDirectory(prefix="work-") as name:
        folder = Path(name)
        given = environment(folder)
        if tree is not None:
            given["PYTHONPATH"] = f"{tree.resolve() / 'src'}:{HERE.parent}"
        prefix = [each.format(folder=folder) for each in under]
        done = subprocess.run(  # noqa: S603
            [*prefix, sys.executable, "-m", f"benchmarks.{module}", *arguments],
            env=given,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{module} failed: {done.stderr[-2000:]}")
        yield done.stdout, folder
