"""`toolwire new`: a small project that works and is tested, to be changed into one's own."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from toolwire.errors import UsageError


def new(
    name: Annotated[str, typer.Argument(help="The project's name, or the folder to make it in.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Use a folder that is not empty. Files that are there are kept as they are."
        ),
    ] = False,
) -> None:
    """Make a new project: tools, an agent that uses them, and their tests.

    Examples:

      toolwire new notebook

      toolwire new work/my-tools
    """
    from importlib.metadata import packages_distributions  # noqa: PLC0415 - reads what is installed

    from toolwire.cli.shared.project import files, package_name  # noqa: PLC0415 - only this command needs it

    if not name.strip():
        raise UsageError("a project needs a name: try `toolwire new my-tools`")
    folder = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - without following links
    package = package_name(folder.name, packages_distributions())
    _check(folder, force=force)
    wanted = files(package)
    kept = [path for path in wanted if os.path.lexists(folder / path)]
    _write(folder, {path: text for path, text in wanted.items() if path not in kept})

    typer.echo(f"Made {package} in {folder}")
    for path in wanted:
        typer.echo(f"  {path}{'  (was there, kept as it is)' if path in kept else ''}")
    typer.echo("\nNext:")
    for line in _next(folder, package):
        typer.echo(f"  {line}")


def _check(folder: Path, *, force: bool) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is there already, and is not a folder: choose another name")
    try:
        full = any(path.name != ".git" for path in folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be looked into: {error.strerror}") from None
    if full and not force:
        raise UsageError(
            f"the folder {folder} is not empty: choose another name, or add what is missing with --force, which "
            "keeps all files that are there"
        )


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """All files or none."""
    from toolwire.cli.shared.exit_codes import fail  # noqa: PLC0415 - typer and rich are there by now

    try:
        with _undone_on_failure() as made:
            for path, text in texts.items():
                _make_folder((folder / path).parent, made)
                with (folder / path).open("x", encoding="utf-8", newline="\n") as file:
                    made.append(folder / path)
                    file.write(text)
    except OSError as error:
        fail(f"{error.filename or folder} could not be written: {error.strerror}. Nothing was left behind")


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """A list of what was made, which is removed again, last first, if the block fails or is interrupted."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):  # what somebody else has put there in the meantime stays
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _make_folder(folder: Path, made: list[Path]) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent, made)
    folder.mkdir()
    made.append(folder)


def _next(folder: Path, package: str) -> list[str]:
    """What to type now."""
    here = Path.cwd()
    way = os.path.relpath(folder, here) if folder.is_relative_to(here) else str(folder)
    return [
        *([] if folder == here else [f"cd {shlex.quote(way)}"]),
        f"{'pytest':<44}the tests: no network, no key (pip install pytest)",
        f"{f'toolwire tools {package}.py':<44}what Claude will see",
        f"{f'toolwire call {package}.py find word=tea':<44}call one yourself",
        f"{f'toolwire run -t {package}.py':<44}talk to your own Claude, who uses them",
        f"{'python agent.py':<44}the same from a program of yours",
        f"toolwire config {package}.py --for claude-desktop",
    ]
