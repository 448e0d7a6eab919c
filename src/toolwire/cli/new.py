"""`toolwire new`: creates a small project, with tests, as a starting point for the user's own.

The files are in `templates/`, with placeholders such as `{{package}}` and `{{project}}`. Their names end in `.txt`,
so that no tool takes them for modules of toolwire. Their readers are new to toolwire, so the files show one good
way to do each thing and nothing else.
"""

import keyword
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolwire._version import __version__
from toolwire.cli.shared.printing import fail
from toolwire.cli.shared.target_options import (
    OPENAPI,
    BaseUrlOption,
    IncludeOption,
    connect,
    resolve_target,
    run,
)
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.openapi.server import OpenAPI

LONGEST_NAME: Final = 40
_STEP_WIDTH: Final = 60
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")
_RESERVED: Final = frozenset({"agent", "tests", "conftest", "toolwire", "pytest"})
_TEMPLATES: Final = files("toolwire.cli") / "templates"  # works from a zip file too
_FILES: Final = {  # path in the project: template
    "pyproject.toml": "pyproject.toml.txt",
    "{{package}}.py": "server.py.txt",
    "agent.py": "agent.py.txt",
    "tests/test_{{package}}.py": "test_server.py.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
_OPENAPI_FILES: Final = _FILES | {
    "{{package}}.py": "openapi_server.py.txt",
    "tests/test_{{package}}.py": "openapi_test.py.txt",
    "README.md": "openapi_README.md.txt",
}
_MOST_TESTED: Final = 30
_UNSAFE: Final = re.compile(r"[^\w .,()-]")  # a title is written into a docstring, and could contain anything


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The project's name, or the folder to create it in.")
    ],
    force: Annotated[
        bool,
        typer.Option("--force", help="Use a folder that is not empty. Existing files are kept unchanged."),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="openapi:DOCUMENT", help="Create the tools from an OpenAPI document."),
    ] = None,
    include: IncludeOption = None,
    base_url: BaseUrlOption = None,
) -> None:
    """Create a new project: tools, an agent that uses them, and their tests.

    Examples:

      toolwire new notebook

      toolwire new work/my-tools

      toolwire new pets --from openapi:petstore.yaml --include 'tag:pets'
    """
    from importlib.metadata import packages_distributions  # noqa: PLC0415 - slow to load

    if not name.strip():
        raise UsageError("a project needs a name: try `toolwire new my-tools`")
    folder = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - without following links
    package = package_name(folder.name, packages_distributions())
    _check_folder(folder, force=force)
    if source is None:
        if include or base_url:
            raise UsageError("--include and --base-url only apply with --from openapi:DOCUMENT")
        texts, steps = project_files(package), _next_steps(folder, package)
    else:
        texts, first = _document_files(package, source, include or [], base_url)
        steps = [each for each in _next_steps(folder, package, f"{first} ...") if "agent.py" not in each]
    kept = [path for path in texts if os.path.lexists(folder / path)]
    _write(folder, {path: text for path, text in texts.items() if path not in kept})

    typer.echo(f"Created {package} in {folder}")
    for path in texts:
        typer.echo(f"  {path}{'  (existed, kept unchanged)' if path in kept else ''}")
    typer.echo("\nNext, with no network and no key:")
    for line in steps:
        typer.echo(f"  {line}".rstrip())


def package_name(text: str, installed: Collection[str] = ()) -> str:
    """Turn a project's name into a module name. `UsageError` if that name would not work."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if (problem := _find_problem(name, installed)) is not None:
        package = f" (as a package: {name!r})" if name != text and name else ""
        raise UsageError(f"a project cannot be called {text!r}{package}: {problem}")
    return name


def _find_problem(name: str, installed: Collection[str]) -> str | None:
    """Return the first problem with a module name, and another name to try."""
    dashed = name.replace("_", "-")
    too_long = f"it has {len(name)} characters, and the limit is {LONGEST_NAME}"
    standard = f"it would hide {name!r} of Python's standard library"
    rows = (
        (not name, "it has no letter from a to z", "my-tools"),
        (name[:1].isdigit(), "a package's name cannot begin with a digit", f"tools-{dashed}"),
        (len(name) > LONGEST_NAME, too_long, dashed[:20].strip("-")),
        (keyword.iskeyword(name), "it is a keyword of Python", f"my-{dashed}"),
        (name in sys.stdlib_module_names, standard, f"my-{dashed}"),
        (name in _RESERVED, f"a new project contains another {name!r}", f"my-{dashed}"),
        (name in installed, f"it would hide the installed package {name!r}", f"my-{dashed}"),
    )
    return next((f"{what}. Try `toolwire new {other}`" for wrong, what, other in rows if wrong), None)


def project_files(
    package: str, templates: Mapping[str, str] = _FILES, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the files of a new project, by their path in it. `more` are values for placeholders."""
    values = {
        "package": package,
        "project": package.replace("_", "-"),
        "version": __version__,
        "extra": "",
        "prompt": "Which of my notes mention tea?",
        **(more or {}),
    }

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

    return {
        fill(path): fill((_TEMPLATES / template).read_text(encoding="utf-8"))
        for path, template in templates.items()
    }


def _document_files(
    package: str, source: str, include: Sequence[str], base_url: str | None
) -> tuple[dict[str, str], str]:
    """Return the files of a project whose tools come from an OpenAPI document, and the name of the first tool."""
    if not source.startswith(OPENAPI):
        raise UsageError(f"--from takes openapi:DOCUMENT, such as openapi:petstore.yaml, got {source!r}")
    target = resolve_target(source, None, list(include), openapi={"base_url": base_url, "name": package})
    server: OpenAPI = target.server
    run(_load, target)
    if not server.operations:
        raise UsageError(f"{source} has no operation that can be used: see `toolwire check {source}`")
    content = (server.content or b"").decode("utf-8-sig", "replace")
    ending = PurePosixPath(source.partition("?")[0]).suffix.lower()
    document = "openapi.json" if content.lstrip().startswith("{") else f"openapi{ending or '.yaml'}"
    names = list(server.operations)
    base = base_url or (server.named_server if server.named_server and "://" in server.named_server else None)
    values = {
        "title": _UNSAFE.sub("", server.title_of_document).strip() or package,
        "document": document,
        "base_url": repr(base),
        "include": repr(list(include)),
        "tools": repr(names[:_MOST_TESTED]),
        "first": names[0],
        "extra": "[openapi]",
        "prompt": "What can you do?",
        "credentials": _describe_credentials(server),
    }
    return {**project_files(package, _OPENAPI_FILES, values), document: content}, names[0]


async def _load(target: "Target") -> None:
    async with connect(target):
        pass  # `connect` waits until the document is read, and raises if it cannot be used


def _describe_credentials(server: "OpenAPI") -> str:
    variables = [each.variable for each in server.schemes.values() if each.kind != "unsupported"]
    if not variables:
        return "The API needs no credentials."
    return f"Credentials come from the environment: {', '.join(f'`{each}`' for each in variables)}."


def _check_folder(folder: Path, *, force: bool) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} exists and is not a folder: choose another name")
    try:
        full = any(path.name != ".git" for path in folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot list the folder {folder}: {error.strerror}") from None
    if full and not force:
        raise UsageError(
            f"the folder {folder} is not empty: choose another name, or add the missing files with --force, which "
            "keeps all existing files"
        )


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write all files or none."""
    try:
        with _undo_on_failure() as created:
            for path, text in texts.items():
                _make_folder((folder / path).parent, created)
                with (folder / path).open("x", encoding="utf-8", newline="\n") as file:
                    created.append(folder / path)
                    file.write(text)
    except OSError as error:
        fail(f"cannot write {error.filename or folder}: {error.strerror}. Nothing was left behind")


@contextmanager
def _undo_on_failure() -> Iterator[list[Path]]:
    """Remove the paths in the list again, last first, if the block fails or is interrupted."""
    created: list[Path] = []
    try:
        yield created
    except BaseException:
        for path in reversed(created):
            with suppress(OSError):  # a folder in which another process created a file stays
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _make_folder(folder: Path, created: list[Path]) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent, created)
    folder.mkdir()
    created.append(folder)


def _next_steps(folder: Path, package: str, call: str = "find word=tea") -> list[str]:
    """Return the commands to try next."""
    here = Path.cwd()
    way = os.path.relpath(folder, here) if folder.is_relative_to(here) else str(folder)
    scripted = f'toolwire run -t {package}.py --scripted "{call}"'
    return [
        *([] if folder == here else [f"cd {shlex.quote(way)}"]),
        "python -m pip install pytest",
        _step("python -m pytest", "the tests"),
        _step(f"toolwire tools {package}.py", "list the tools as Claude sees them"),
        _step(f"toolwire call {package}.py {call}", "call one yourself"),
        _step(scripted, "a conversation with a scripted Claude"),
        _step(f"toolwire config {package}.py --for claude-desktop", "use them in a desktop client"),
        "",
        "With a Claude account or key; costs money:",
        _step(f"toolwire run -t {package}.py", "talk to Claude, who uses the tools"),
        _step("python agent.py", "the same from a program"),
    ]


def _step(command: str, purpose: str) -> str:
    return f"{command:<{_STEP_WIDTH}}{purpose}"
