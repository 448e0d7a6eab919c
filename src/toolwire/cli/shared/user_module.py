"""A user's Python file as a module of this process.

Owns the import: `sys.path` as Python sets it for a script, a name in `sys.modules` that shadows nobody, prints sent
to stderr, and everything that can go wrong told in one line. It knows nothing of tools or servers.

A file of a package is imported under its full name, so that its relative imports work. Any other file gets its own
name if that is free. Neighbours of the file can be imported by it, but never in place of Python's own modules or of
those that toolwire stands on: somebody's `email.py` or `mcp.py` must not break what is loaded later.
"""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn, TypeVar

from toolwire._support.words import closest
from toolwire.errors import UsageError
from toolwire.tools.dispatch.failures import was_pressed

T = TypeVar("T")

_OWN: Final = {
    *(
        "toolwire",
        "anyio",
        "annotated_types",
        "click",
        "docstring_parser",
        "fastmcp",
        "h11",
        "httpx",
        "httpx2",
    ),
    *("idna", "jsonschema", "jsonschema_rs", "mcp", "mcp_types", "opentelemetry", "orjson", "pydantic"),
    *("pydantic_core", "pydantic_settings", "pygments", "referencing", "rich", "shellingham", "sniffio"),
    *("sse_starlette", "starlette", "trio", "typer", "typing_extensions", "uvicorn", "uvloop", "watchfiles"),
}
_FOREIGN: Final = {"site-packages", "dist-packages", "node_modules"}
_ALIAS: Final = "toolwire_target_"


class _Reserved:
    """A finder that looks for reserved names everywhere but in the folders of targets."""

    def __init__(self) -> None:
        self.folders: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or not _is_reserved(name):
            return None
        elsewhere = [each for each in sys.path if each not in self.folders]
        return importlib.machinery.PathFinder.find_spec(name, elsewhere, target)


_reserved = _Reserved()


def from_file(path: Path, shown: str) -> ModuleType:
    """The module of a file. `shown` is how the user wrote it. `UsageError` says what is wrong with it."""
    if not path.exists():
        raise UsageError(f"{shown} is not there{_near(path)}")
    if not path.is_file():
        raise UsageError(f"{shown} is a folder; name a file in it")
    path = path.resolve()
    root, name = _package(path)
    if "." in name or path.name == "__init__.py":
        if _is_reserved(name.partition(".")[0]):
            raise UsageError(
                f"{shown}: its package has the name of a module that is needed; rename the folder"
            )
        _open_to(root)
        module = guarded(lambda: importlib.import_module(name), shown, path)
        if _file_of(module) != path:
            raise UsageError(
                f"{shown} would be imported as {name}, and that is {_file_of(module)}; rename one"
            )
        return module
    return _alone(path, shown)


def from_name(name: str) -> ModuleType:
    """The module of a dotted name, seen from the working directory as by `python -m`."""
    here = Path.cwd()
    _open_to(here)
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        hint = _near(Path(f"{name}.py")) or "; a file is named with its .py, as in app.py"
        raise UsageError(f"there is no module {name} in this Python or in this folder{hint}")
    return guarded(lambda: importlib.import_module(name), name, Path(spec.origin) if spec.origin else here)


def guarded(work: Callable[[], T], shown: str, path: Path) -> T:
    """What `work` returns; prints go to stderr, and what it raises becomes a line about the user's code."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return work()
        except SyntaxError as error:
            text = f": {error.text.strip()}" if error.text else ""
            file = _relative(Path(error.filename)) if error.filename else shown
            raise UsageError(f"{file}, line {error.lineno}: {error.msg}{text}") from error
        except SystemExit as error:
            raise UsageError(
                f"{shown} ended the program while it was imported "
                f"(exit code {error.code}{_at(error, path, ', ')}); "
                'put what shall run only as a script under if __name__ == "__main__":'
            ) from error
        except KeyboardInterrupt as error:
            if was_pressed(error):
                raise
            _refuse(error, shown, path)
        except Exception as error:  # noqa: BLE001 - the boundary to the user's code
            _refuse(error, shown, path)


def neighbours(path: Path) -> list[str]:
    """The names of the loaded modules that lie in the folder of a target's file, the file's own included."""
    root, _ = _package(path)
    package = root if root == path.parent else path.parents[len(path.relative_to(root).parts) - 2]
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in {"__main__", "__mp_main__"}
        and not _is_reserved(name.partition(".")[0])
        and (file := _file_of(module)) is not None
        and file.is_relative_to(package)
        and not _elsewhere(file.relative_to(package))
    ]


def files_of(names: Iterable[str]) -> list[Path]:
    """The files of loaded modules."""
    files = [_file_of(sys.modules[name]) for name in names if name in sys.modules]
    return [file for file in files if file is not None]


@contextlib.contextmanager
def dropped(names: Iterable[str]) -> Iterator[None]:
    """Inside, these modules and those beside them are not loaded; if it fails, the old ones are back."""
    first = list(names)
    files = files_of(first[:1])
    gone = dict.fromkeys([*first, *(neighbours(files[0]) if files else [])])
    old = {name: sys.modules.pop(name) for name in gone if name in sys.modules}
    for module in old.values():
        # Python tells a stale cache by size and whole seconds: two quick edits may look the same.
        if cached := getattr(module, "__cached__", None):
            with contextlib.suppress(OSError):
                Path(cached).unlink(missing_ok=True)
    importlib.invalidate_caches()
    linecache.checkcache()
    try:
        yield
    except BaseException:
        sys.modules.update(old)
        raise


def _alone(path: Path, shown: str) -> ModuleType:
    """The module of a file that belongs to no package."""
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and _file_of(loaded) == path:
        return loaded
    if not name.isidentifier() or _is_reserved(name) or loaded is not None:
        name = _ALIAS + "".join(char if char.isalnum() else "_" for char in name)
        while (loaded := sys.modules.get(name)) is not None and _file_of(loaded) != path:
            name += "_"
        if loaded is not None:
            return loaded
    _open_to(path.parent)
    return guarded(lambda: _loaded(name, path), shown, path)


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _open_to(folder: Path) -> None:
    """Let imports find what is in a folder, as Python does for the folder of a script."""
    text = str(folder)
    if _reserved not in sys.meta_path:
        sys.meta_path.insert(0, _reserved)
    if text in sys.path[:1]:
        return
    if text not in sys.path:
        _reserved.folders.add(text)
    sys.path.insert(0, text)


def _is_reserved(name: str) -> bool:
    return name in sys.stdlib_module_names or name in _OWN


def _package(path: Path) -> tuple[Path, str]:
    """The folder to import from, and the dotted name that the file has there."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _elsewhere(file: Path) -> bool:
    """Whether a file below a target's folder is no part of it: installed, or in a hidden folder such as .venv."""
    return any(part in _FOREIGN or part.startswith(".") for part in file.parts[:-1])


def _file_of(module: Any) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


# --- words ---


def _refuse(error: BaseException, shown: str, path: Path) -> NoReturn:
    said = " ".join(str(error).split())
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"; install it for {sys.executable}, or run toolwire with the Python that has it"
    raise UsageError(f"{shown} could not be imported: {what}{_at(error, path, ' (', ')')}{hint}") from error


def _at(error: BaseException, path: Path, before: str, after: str = "") -> str:
    """The deepest line of the user's own code in the trace."""
    folder = path.parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(folder) and not _elsewhere(file.relative_to(folder)):
            return f"{before}{_relative(file)}:{frame.lineno}{after}"
    return ""


def _relative(file: Path) -> Path:
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def _near(path: Path) -> str:
    """A file of nearly that name in the same folder."""
    folder = path.parent
    there = sorted(each.stem for each in folder.glob("*.py")) if folder.is_dir() else []
    near = closest(path.stem, there)
    return f"; did you mean {folder / near}.py?" if near else ""
