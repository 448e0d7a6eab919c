"""Finds the server that a TARGET on the command line names, and loads it again when its files change.

    app.py   app.py:calc   package.module:calc   https://example.com/mcp   catalog:agentpmt   catalog:shop.toml
    openapi:spec.yaml   openapi:https://example.com/openapi.json

Owns the syntax of targets, the choice of objects in a module, and the error messages for both. Loading a user's
file is in `user_module`. It serves nothing and connects to nothing.
"""

import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio

from toolwire._support.words import closest
from toolwire.cli.shared import user_module
from toolwire.cli.shared.printing import note
from toolwire.cli.shared.progress import LoadProgress
from toolwire.cli.shared.target_options import CATALOG, OPENAPI
from toolwire.errors import ClaudeSDKError, ToolDefinitionError, UsageError
from toolwire.mcp.foreign import as_server
from toolwire.mcp.foreign.detect import find_low_level_server
from toolwire.mcp.versions import SERVING, check_mcp
from toolwire.options.mcp_servers import is_server as could_serve
from toolwire.tools.chain import load_chains
from toolwire.tools.chained import Chained
from toolwire.tools.names import find_name_problem, wire_name
from toolwire.tools.searchable import Searchable
from toolwire.tools.server import ToolServer
from toolwire.tools.tool import Tool, from_function
from toolwire.tools.toolset import Combined, Renamed
from toolwire.wrap import group, matches_any, only, searchable, with_chains, without

if TYPE_CHECKING:
    from toolwire.tools.dispatch.interface import Server

_POLL_INTERVAL: Final = 0.5  # seconds between two checks of the files of a target
_FILE: Final = re.compile(r"(?P<path>.+\.py)(?::(?P<name>[^/\\]*))?", re.DOTALL)
_MODULE: Final = re.compile(r"(?P<path>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::(?P<name>.*))?", re.DOTALL)
_FACTORY: Final = ("make_", "create_")
_FORMS: Final = (
    "a target is app.py, app.py:name, package.module:name, the URL of an MCP server, catalog:PROFILE or "
    "openapi:DOCUMENT"
)
_OURS: Final = (ToolServer, Renamed, Combined, Chained, Searchable)


@dataclass(frozen=True)
class Target:
    """A server that was named on the command line."""

    text: str
    """The target as it was typed."""
    name: str
    """The name of the server."""
    server: Any
    """Any in-process server that the option `mcp_servers` accepts."""
    path: Path | None = None
    """The file that defines it; None for a URL."""
    modules: tuple[str, ...] = ()
    """The names of that file and its neighbours in `sys.modules`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    choice: "Choice | None" = None
    source: Any = None
    """The server that loads the tools, for a `catalog:` or `openapi:` target; `server` may be a wrapper of it."""


@dataclass(frozen=True)
class Choice:
    """The tools to use of a target, by globs, and the options of a catalogue or an OpenAPI document."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    catalog: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `Catalog`, such as `budget`."""
    openapi: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `OpenAPI`, such as `base_url`."""
    groups: tuple[str, ...] = ()
    """Use only tools with one of these tags."""
    find_tools: bool = False
    """True: clients get a search tool instead of the list of tools."""
    always_list: tuple[str, ...] = ()
    """Globs of tools that are listed together with the search tool."""
    chains: tuple[Path, ...] = ()
    """Files of chains to offer as tools."""


def resolve(text: str, headers: Mapping[str, str] | None = None, choice: Choice | None = None) -> Target:
    """Find the server that `text` names. `headers` are for a URL. `UsageError` if there is none."""
    choice = choice or Choice()
    for given, prefix in ((choice.catalog, CATALOG), (choice.openapi, OPENAPI)):
        if given and not text.startswith(prefix):
            # As on the command line, where `credentials_file` is --credentials.
            names = ", ".join(f"--{name.removesuffix('_file').replace('_', '-')}" for name in given)
            verb = "applies" if len(given) == 1 else "apply"
            raise UsageError(f"{names} only {verb} to {prefix} targets, and {text} is not one")
    if text.startswith(CATALOG):
        return _open_catalog(text, headers, choice)
    if text.startswith(OPENAPI):
        return _open_document(text, headers, choice)
    return _filter(_resolve(text, headers), choice)


def _open_document(text: str, headers: Mapping[str, str] | None, choice: Choice) -> Target:
    from toolwire.openapi.server import OpenAPI  # noqa: PLC0415 - loads the HTTP library

    given = dict(choice.openapi)
    network: dict[str, Any] = {key: given.pop(key) for key in ("allow_http", "allow_network") if key in given}
    if "allow_network" in network:
        network["allow"] = tuple(network.pop("allow_network"))
    source = text.removeprefix(OPENAPI)
    if not source.lower().startswith(("http://", "https://")):
        text = f"{OPENAPI}{Path(source).absolute()}"  # so that it can be found from any folder
    server = OpenAPI(
        source,
        headers=headers,
        include=choice.include,
        exclude=choice.exclude,
        network=network,
        on_progress=LoadProgress.on_terminal(),
        **given,
    )
    return _filter_loaded(Target(text, server.name, server), choice)


def _open_catalog(text: str, headers: Mapping[str, str] | None, choice: Choice) -> Target:
    if headers:
        raise UsageError(f"--header only applies to URLs: set the headers of {text} in its profile")
    from toolwire.catalog.server import Catalog  # noqa: PLC0415 - loads mcp

    profile = text.removeprefix(CATALOG)
    server = Catalog(profile, include=choice.include, exclude=choice.exclude, **choice.catalog)
    return _filter_loaded(Target(text, server.name, server), choice)


def _filter_loaded(target: Target, choice: Choice) -> Target:
    """Filter a server that loads its tools itself, and has already applied `include` and `exclude`."""
    return replace(_filter(target, replace(choice, include=(), exclude=())), source=target.server)


def _filter(target: Target, choice: Choice) -> Target:
    server = target.server
    if choice.include and isinstance(server, ToolServer) and server.tools:
        _check_include(choice.include, server.tools, target.text)
    if choice.include:
        server = only(server, *choice.include)
    if choice.exclude:
        server = without(server, *choice.exclude)
    if choice.groups:
        server = group(server, *choice.groups)
    if choice.chains:
        server = with_chains(server, *(each for path in choice.chains for each in load_chains(path)))
    if choice.find_tools:
        server = searchable(server, always=choice.always_list)
    elif choice.always_list:
        raise UsageError("--always-list only applies with --find-tools")
    return replace(target, server=server, choice=choice)


def _check_include(globs: tuple[str, ...], names: Collection[str], where: str) -> None:
    """Raise `UsageError` if no tool matches: the server would be empty, without any explanation."""
    if not any(matches_any(name, globs) for name in names):
        shown = ", ".join([*names][:10])
        raise UsageError(f"--include {' '.join(globs)} matches none of the tools of {where}: {shown}")


def _resolve(text: str, headers: Mapping[str, str] | None) -> Target:
    if text.lower().startswith(("http://", "https://")):
        return _open_url(text, headers or {})
    if headers:
        raise UsageError(f"--header only applies to URLs, and {text} is not one")
    if not text.strip():
        raise UsageError(f"no target given; {_FORMS}")
    if (file := _FILE.fullmatch(text)) is not None:
        module = user_module.load_file(Path(file["path"]), file["path"])
        return _make_target(text, module, file["path"], file["name"])
    _refuse_path(text)
    named = _MODULE.fullmatch(text)
    if named is None:
        raise UsageError(f"{text!r} is not a target; {_FORMS}")
    return _make_target(text, user_module.load_name(named["path"]), named["path"], named["name"])


def reload(target: Target) -> Target:
    """Import the files of a target again. If that raises `UsageError`, the old target still works."""
    if target.path is None:
        return target
    with user_module.unloaded(target.modules):
        return replace(resolve(target.text, choice=target.choice), name=target.name)


def list_files(target: Target) -> list[Path]:
    """List the files to watch: the target's own, and those of its folder that it has loaded."""
    if target.path is None:
        return []
    return sorted({target.path, *user_module.files_of(user_module.neighbours(target.path))})


async def reload_on_change(
    target: Target, on_reload: Callable[["Server"], Awaitable[None]], report: Callable[[str], None]
) -> None:
    """Load the target again whenever one of its files changes, and pass the new server to `on_reload`."""
    seen = _read_stamps(list_files(target))
    while True:
        await anyio.sleep(_POLL_INTERVAL)
        now = _read_stamps(list_files(target))
        if now == seen:
            continue
        seen = now
        try:
            target = reload(target)
            await on_reload(as_server(target.server))
        except ClaudeSDKError as error:
            report(f"not reloaded: {error}")
        except Exception as error:  # noqa: BLE001 - the file is being edited and may raise anything
            report(f"not reloaded: {type(error).__name__}: {error}")
        else:
            report(f"reloaded {target.text}")
            seen = _read_stamps(list_files(target))


def _read_stamps(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    stamps = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # editors remove a file for a moment while they save it
            continue
        stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps


def _open_url(url: str, headers: Mapping[str, str]) -> Target:
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and not re.search(r"\s", url) and (parts.port or 1)
    except ValueError:
        whole = False
    if not whole:
        raise UsageError(f"{url} is not a valid URL; write one like https://example.com/mcp")
    check_mcp("a server on the web", SERVING)
    from toolwire.mcp.remote import name_of, proxy  # noqa: PLC0415 - loads mcp

    return Target(url, name_of(url), proxy(url, headers), headers=headers)


def _refuse_path(text: str) -> None:
    """Raise `UsageError` for a path that is not a Python file."""
    path = Path(text.partition(":")[0])
    if path.is_dir() and not (path / "__init__.py").exists():
        files = sorted(each.name for each in path.glob("*.py"))
        hint = f"name a file in it, as in {path / files[0]}" if files else "it contains no Python file"
        raise UsageError(f"{text} is a folder: {hint}")
    if path.is_file() or "/" in text or "\\" in text:
        there = "is not a Python file" if path.exists() else "does not exist"
        raise UsageError(f"{text} {there}; {_FORMS}")


def _make_target(text: str, module: types.ModuleType, place: str, name: str | None) -> Target:
    path = Path(module.__file__).resolve() if module.__file__ else None
    label, server = _find_one(module, place) if name is None else _find_named(module, place, name)
    own = None if isinstance(server, Renamed) else getattr(server, "name", None)
    called = own if isinstance(own, str) and find_name_problem(own) is None else wire_name(label)
    loaded = tuple(user_module.neighbours(path)) if path is not None else ()
    return Target(text, called, server, path, tuple(dict.fromkeys([module.__name__, *loaded])))


# --- a whole module ---


def _find_one(module: types.ModuleType, place: str) -> tuple[str, Any]:
    """Return the only server of a module, or a server made of its functions."""
    servers = _servers_in(module)
    if len(servers) > 1:
        names = list(servers)
        counted = f"two servers, {names[0]} and {names[1]}"
        if len(names) > 2:  # noqa: PLR2004 - two have a sentence of their own
            counted = f"{len(names)} servers, {', '.join(names[:-1])} and {names[-1]}"
        raise UsageError(f"{place} has {counted}: name one, as in {place}:{names[0]}")
    if servers:
        return next(iter(servers.items()))
    functions = dict(_functions_in(module))
    factories = [name for name, each in functions.items() if _returns_server(each)]
    if len(factories) == 1:
        return factories[0], _call_factory(functions[factories[0]], f"{place}:{factories[0]}")
    tools: dict[int, Any] = {id(each): each for each in vars(module).values() if isinstance(each, Tool)}
    public = [
        each for name, each in functions.items() if name != "main"
    ]  # the entry point of a script, not a tool
    stem = _stem(module)
    if not tools and not public:
        raise UsageError(
            f"{place} has no tools: define a function in it, or a server such as ToolServer({stem!r})"
        )
    return stem, _make_server(stem, [*tools.values(), *public], place, skip=True)


def _stem(module: types.ModuleType) -> str:
    """Derive a server name from the file of a module."""
    file = Path(module.__file__ or module.__name__)
    stem = wire_name(file.parent.name if file.stem == "__init__" else file.stem)
    return stem if find_name_problem(stem) is None else "tools"


def _servers_in(module: types.ModuleType) -> dict[str, Any]:
    """Find the servers of a module, each once, under its first name."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        server = _unpack(value)
        if not name.startswith("__") and _is_server(server):
            found.setdefault(id(server), (name, server))
    return dict(found.values())


def _functions_in(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Find the public functions defined in a module, without context managers and async generators."""
    for name, value in vars(module).items():
        if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != module.__name__:
            continue
        inner = inspect.unwrap(value)
        manager = inner is not value and inspect.isgeneratorfunction(inner)
        if not manager and not inspect.isasyncgenfunction(inner):
            yield name, value


# --- one thing in it ---


def _find_named(module: types.ModuleType, place: str, name: str) -> tuple[str, Any]:
    value: Any = module
    for step in name.split("."):
        try:
            value = getattr(value, step)
        except AttributeError:
            raise UsageError(_describe_unknown(module, place, name)) from None
    last = name.rpartition(".")[2]
    where = f"{place}:{name}"
    if inspect.isfunction(value) and _is_factory(value):
        value = _call_factory(value, where)
    return last, _as_server(value, _stem(module), where)


def _describe_unknown(module: types.ModuleType, place: str, name: str) -> str:
    tools = [key for key, value in vars(module).items() if isinstance(value, Tool)]
    there = [*_servers_in(module), *tools, *(key for key, _ in _functions_in(module))]
    near = closest(name, there)
    hint = f"did you mean {near}? " if near else ""
    listed = f"it defines {', '.join(there[:10])}" if there else "it defines no server and no function"
    return f"{place} has no {name!r}: {hint}{listed}" if name else f"{place}: name something after the colon"


def _as_server(value: Any, label: str, where: str) -> Any:
    value = _unpack(value)
    if _is_server(value) or (could_serve(value) and not isinstance(value, types.ModuleType)):
        return value
    if isinstance(value, Tool) or inspect.isroutine(value):
        return _make_server(label, [value], where)
    many = isinstance(value, list | tuple) and value
    if many and all(isinstance(each, Tool) or inspect.isroutine(each) for each in value):
        return _make_server(label, value, where)
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    raise UsageError(f"{where} is {kind}; a target is a server, a tool, a function, or a list of tools")


def _make_server(name: str, tools: Any, place: str, *, skip: bool = False) -> ToolServer[Any]:
    """Make a server of tools and functions. With `skip`, a note says which function cannot become a tool."""
    name = wire_name(name)
    server: ToolServer[Any] = ToolServer(name if find_name_problem(name) is None else "tools")
    problems: list[tuple[str, ToolDefinitionError]] = []
    for each in tools:
        called = each.name if isinstance(each, Tool) else getattr(each, "__name__", repr(each))
        try:
            server.add(each if isinstance(each, Tool) else from_function(each))
        except ToolDefinitionError as error:
            reason = str(error).removeprefix(f"tool {called!r}: ")
            problems.append((f"{place}: {called} cannot become a tool: {reason}", error))
    if problems and not (skip and server.tools):
        text, cause = problems[0]
        raise UsageError(f"{text} (a function whose name starts with an underscore is left out)") from cause
    for text, _ in problems:
        note(f"{text}. It is left out.")
    return server


# --- kinds of objects ---


def _unpack(value: Any) -> Any:
    """Return the server inside a config of `create_sdk_mcp_server`."""
    if isinstance(value, dict) and value.get("type") == "sdk" and "instance" in value:
        return value["instance"]
    return value


def _is_server(value: Any) -> bool:
    """True for objects that are certainly servers; having a `connect` method is not enough."""
    if isinstance(value, _OURS):
        return True
    if isinstance(value, type | types.ModuleType | Mapping) or inspect.isroutine(value):
        return False
    try:
        find_low_level_server(value)
    except Exception:  # noqa: BLE001 - an object of the user may raise anything when it is inspected
        return False
    return True


def _is_factory(function: Callable[..., Any]) -> bool:
    if _returns_server(function):
        return True
    unannotated = "return" not in getattr(function, "__annotations__", {})
    return unannotated and function.__name__.startswith(_FACTORY) and not _required(function)


def _returns_server(function: Callable[..., Any]) -> bool:
    """True for a function without required parameters whose annotation is a server."""
    try:
        returned = typing.get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001 - annotations are code of the user, and evaluating them may raise anything
        return False
    kind = typing.get_origin(returned) or returned
    if not isinstance(kind, type) or _required(function):
        return False
    foreign = kind.__module__.partition(".")[0] in {"mcp", "fastmcp"}
    return issubclass(kind, _OURS) or (foreign and hasattr(kind, "run"))


def _required(function: Callable[..., Any]) -> list[str]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.default is each.empty and each.kind not in variable]


def _call_factory(factory: Callable[..., Any], where: str) -> Any:
    if inspect.iscoroutinefunction(factory):
        raise UsageError(f"{where} is async; a function that makes a server must be a sync one")
    made = _unpack(user_module.run_user_code(factory, where, Path(inspect.getfile(factory))))
    if _is_server(made) or could_serve(made) or isinstance(made, list | tuple):
        return made
    raise UsageError(
        f"{where} was called to make a server and returned {type(made).__name__}; to use it as a tool, "
        "annotate its return type, as in -> str"
    )
