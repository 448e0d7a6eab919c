"""Imports a user's Python file into this process.

Owns the import: `sys.path` as Python sets it for a script, a name in `sys.modules` that shadows no other module,
and a one-line message for every failure. Prints of the file go to stderr. Nothing in the user's folder is
changed, `.pyc` files included. It knows nothing of tools or servers.

A file of a package is imported under its full name, so that its relative imports work. Any other file gets its own
name if that is free. It can import its neighbours, but they never replace modules of Python or of toolwire's
dependencies: a user's `email.py` or `mcp.py` must not break imports that come later.
"""

import contextlib
import importlib
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from typing_extensions import Buffer

from toolwire._support.words import closest
from toolwire.errors import UsageError
from toolwire.tools.dispatch.errors import is_ctrl_c

T = TypeVar("T")

_DEPENDENCIES: Final = {
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


class _SourceLoader(SourceFileLoader):
    """Loads a source file without writing a `.pyc` file, and after the first reload without reading one.

    Python recognizes a stale `.pyc` by size and whole seconds, so that two quick edits may look the same to it.
    """

    reads_bytecode: ClassVar = True

    def get_code(self, fullname: str) -> CodeType | None:
        if self.reads_bytecode:
            return super().get_code(fullname)
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def set_data(self, path: str, data: Buffer, *, _mode: int = 0o666) -> None:
        """Write nothing: this is where Python would write the `.pyc` file."""


class _FolderFinder(FileFinder):
    """Finds the modules of a user's folder, and of the packages in it, for `sys.path_importer_cache`.

    With `hide_reserved`, names that Python or toolwire needs are left to the other folders of `sys.path`.
    """

    def __init__(self, folder: str, *, hide_reserved: bool) -> None:
        super().__init__(
            folder,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (_SourceLoader, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )
        self._hide_reserved = hide_reserved

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        if self._hide_reserved and _is_reserved(fullname):
            return None
        spec = super().find_spec(fullname, target)
        for folder in (spec and spec.submodule_search_locations) or ():
            _use_finder(folder, hide_reserved=False)
        return spec


def _use_finder(folder: str, *, hide_reserved: bool) -> None:
    if not isinstance(sys.path_importer_cache.get(folder), _FolderFinder):
        sys.path_importer_cache[folder] = _FolderFinder(folder, hide_reserved=hide_reserved)


def load_file(path: Path, shown: str) -> ModuleType:
    """Import a file; `shown` is its path as the user typed it. `UsageError` if it cannot be imported."""
    if not path.exists():
        raise UsageError(f"{shown} does not exist{_suggest_file(path)}")
    if not path.is_file():
        raise UsageError(f"{shown} is a folder; name a file in it")
    path = path.resolve()
    root, name = _find_package(path)
    if "." in name or path.name == "__init__.py":
        if _is_reserved(name.partition(".")[0]):
            raise UsageError(
                f"{shown}: its package has the name of a module that Python or toolwire needs; rename the folder"
            )
        _add_to_path(root)
        module = run_user_code(lambda: importlib.import_module(name), shown, path)
        if _file_of(module) != path:
            raise UsageError(
                f"{shown} would be imported as {name}, but that is {_file_of(module)}; rename one of them"
            )
        return module
    return _load_alone(path, shown)


def load_name(name: str) -> ModuleType:
    """Import a module by its dotted name, from the working directory too, as `python -m` does."""
    here = Path.cwd()
    _add_to_path(here)
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        hint = _suggest_file(Path(f"{name}.py")) or "; write a file with its .py, as in app.py"
        raise UsageError(f"there is no module {name} in this Python or in this folder{hint}")
    return run_user_code(
        lambda: importlib.import_module(name), name, Path(spec.origin) if spec.origin else here
    )


def run_user_code(work: Callable[[], T], shown: str, path: Path) -> T:
    """Call `work`, which runs user code. Its prints go to stderr, and its exceptions become `UsageError`."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return work()
        except SyntaxError as error:
            text = f": {error.text.strip()}" if error.text else ""
            file = _relative(Path(error.filename)) if error.filename else shown
            raise UsageError(f"{file}, line {error.lineno}: {error.msg}{text}") from error
        except SystemExit as error:
            raise UsageError(
                f"{shown} exited while it was imported "
                f"(exit code {error.code}{_place_of(error, path, ', ')}); "
                'put code that should run only as a script under if __name__ == "__main__":'
            ) from error
        except KeyboardInterrupt as error:
            if is_ctrl_c(error):
                raise
            _raise_usage_error(error, shown, path)
        except Exception as error:  # noqa: BLE001 - the boundary to the user's code
            _raise_usage_error(error, shown, path)


def neighbours(path: Path) -> list[str]:
    """List the loaded modules from the folder of a target's file, the file's own included."""
    root, _ = _find_package(path)
    package = root if root == path.parent else path.parents[len(path.relative_to(root).parts) - 2]
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in {"__main__", "__mp_main__"}
        and not _is_reserved(name.partition(".")[0])
        and (file := _file_of(module)) is not None
        and file.is_relative_to(package)
        and not _is_foreign(file.relative_to(package))
    ]


def files_of(names: Iterable[str]) -> list[Path]:
    """Return the files of loaded modules."""
    files = [_file_of(sys.modules[name]) for name in names if name in sys.modules]
    return [file for file in files if file is not None]


@contextlib.contextmanager
def unloaded(names: Iterable[str]) -> Iterator[None]:
    """Unload these modules and their neighbours for the block. If it raises, they are put back."""
    _SourceLoader.reads_bytecode = False
    first = list(names)
    files = files_of(first[:1])
    gone = dict.fromkeys([*first, *(neighbours(files[0]) if files else [])])
    old = {name: sys.modules.pop(name) for name in gone if name in sys.modules}
    importlib.invalidate_caches()
    linecache.checkcache()
    try:
        yield
    except BaseException:
        sys.modules.update(old)
        raise


def _load_alone(path: Path, shown: str) -> ModuleType:
    """Import a file that belongs to no package."""
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
    _add_to_path(path.parent)
    return run_user_code(lambda: _execute(name, path), shown, path)


def _execute(name: str, path: Path) -> ModuleType:
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _add_to_path(folder: Path) -> None:
    """Put a folder first on `sys.path`, as Python does with the folder of a script."""
    text = str(folder)
    _use_finder(text, hide_reserved=text not in sys.path)
    if text not in sys.path[:1]:
        sys.path.insert(0, text)


def _is_reserved(name: str) -> bool:
    return name in sys.stdlib_module_names or name in _DEPENDENCIES


def _find_package(path: Path) -> tuple[Path, str]:
    """Return the folder to import a file from, and its dotted name there."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _is_foreign(file: Path) -> bool:
    """True for a file below a target's folder that is installed, or in a hidden folder such as .venv."""
    return any(part in _FOREIGN or part.startswith(".") for part in file.parts[:-1])


def _file_of(module: Any) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


# --- error messages ---


def _raise_usage_error(error: BaseException, shown: str, path: Path) -> NoReturn:
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"; install it for {sys.executable}, or run toolwire with the Python that has it"
    raise UsageError(
        f"{shown} could not be imported: {what}{_place_of(error, path, ' (', ')')}{hint}"
    ) from error


def _place_of(error: BaseException, path: Path, before: str, after: str = "") -> str:
    """Return the last line of the user's own code in the traceback."""
    folder = path.parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(folder) and not _is_foreign(file.relative_to(folder)):
            return f"{before}{_relative(file)}:{frame.lineno}{after}"
    return ""


def _relative(file: Path) -> Path:
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def _suggest_file(path: Path) -> str:
    """Suggest a file with a similar name in the same folder."""
    folder = path.parent
    there = sorted(each.stem for each in folder.glob("*.py")) if folder.is_dir() else []
    near = closest(path.stem, there)
    return f"; did you mean {folder / near}.py?" if near else ""
