"""`python -m toolwire.official app.py` and `python -m toolwire.official -m module`: run a program in alias mode."""

import runpy
import sys
from pathlib import Path

from toolwire.official import install_as_official

USAGE = "usage: python -m toolwire.official (FILE | -m MODULE) [ARGUMENT ...]"


def main(arguments: list[str]) -> None:
    """Run a file or a module as `python` does, with toolwire in place of claude_agent_sdk."""
    first = arguments[0] if arguments else ""
    if first in {"-h", "--help"}:
        sys.stdout.write(f"{USAGE}\n")
        return
    if not first or (first.startswith("-") and (first != "-m" or len(arguments) == 1)):
        sys.exit(USAGE)
    if first != "-m" and not Path(first).exists():
        sys.exit(f"python -m toolwire.official: there is no file {first!r}")
    install_as_official()
    if first == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        if not sys.flags.safe_path:  # else the first entry is not the working directory
            sys.path[0] = str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
