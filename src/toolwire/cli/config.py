"""`toolwire config`: the entry that makes an MCP client use a server, printed or put into the client's file.

Owns the reading and writing of that file; what belongs into it is in `_clients`. Stdout gets data only (the entry,
or a command to run), so that it can be piped; all that is said to people goes to stderr.
"""

import os
import sys
from codecs import BOM_UTF8
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from toolwire._support.files import replace_file
from toolwire.cli import config_clients as _clients
from toolwire.cli.config_clients import Client, Document, Entry
from toolwire.cli.shared.exit_codes import fail
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.catalog.profile.model import Profile
    from toolwire.cli.shared.target import Target

_CATALOG: Final = "catalog:"


class For(StrEnum):
    """The clients, as one types them."""

    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"


class Scopes(StrEnum):
    """Who gets the server."""

    PROJECT = "project"
    USER = "user"


def config(
    target: Annotated[
        str | None,
        typer.Argument(help="file.py, file.py:name, package.module:name, or a URL.", show_default=False),
    ] = None,
    *,
    client: Annotated[For, typer.Option("--for", help="The program that is to use the server.")],
    install: Annotated[bool, typer.Option("--install", help="Put the entry into the client's file.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the entry out of that file again.")] = False,
    scope: Annotated[
        Scopes | None,
        typer.Option(help="For this folder (the default where there is a choice) or everywhere."),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="The server runs already, at this URL.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="With --http: it wants a token. Written only where a client knows no other way."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the client calls it; else as the server is called.")
    ] = None,
    path: Annotated[Path | None, typer.Option(metavar="FILE", help="The file, if not the usual one.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A variable for the server.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another server of that name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Tell what was done as one JSON object.")] = False,
) -> None:
    """Show, or install, what makes Claude Desktop, Claude Code, Cursor or VS Code use a server.

    Examples:

      toolwire config shop.py:server --for claude-desktop

      toolwire config shop.py:server --for claude-code --install

      toolwire config shop.py --for vscode --http http://127.0.0.1:8000/mcp --token "$TOKEN"

      toolwire config catalog:agentpmt --for claude-desktop

      toolwire config shop.py --for cursor --remove
    """
    if install and remove:
        raise UsageError("--install and --remove exclude each other")
    if http is None and token is not None:
        raise UsageError("--token goes with --http: a server that the client starts itself needs none")
    if http is not None and env:
        raise UsageError("--env is for a server that the client starts itself, not with --http")
    chosen = _clients.CLIENTS[client]
    where = _place(chosen, scope, path)
    found = _found(target, name, needed=http is None and not remove)
    called = _name(found, name)
    if remove:
        done = _removed(chosen, called, where)
    else:
        if http is not None:
            entry = _clients.http_entry(chosen, called, http, token)
        else:
            python = os.path.abspath(sys.executable)  # noqa: PTH100 - a venv's Python is a link, and must stay one
            assert found is not None  # noqa: S101 - it was needed
            args, variables = _start(found)
            variables.update(_variables(env or []))
            entry = _clients.stdio_entry(chosen, called, python, args, variables, _secrets(found))
        done = _installed(chosen, entry, where, force=force) if install else _shown(chosen, entry, where)
    _tell(done, as_json=as_json)


class Done(NamedTuple):
    """What came of it: `data` for stdout, `words` for people, `facts` for --json."""

    data: str | Document
    words: list[str]
    facts: dict[str, Any]


def _place(client: Client, scope: Scopes | None, path: Path | None) -> Path | None:
    if client.project is None and scope is Scopes.PROJECT:
        raise UsageError(f"{client.title} has one file, and none for a project: leave --scope out")
    if path is not None:
        if path.is_dir():
            raise UsageError(f"--path {path} is a folder: name the file in it")
        return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - a link is followed when written
    which: _clients.Scope = "user" if scope is Scopes.USER else "project"
    return _clients.place(client, which)


def _found(target: str | None, name: str | None, *, needed: bool) -> "Target | None":
    """The server, looked up now so that a wrong target fails here; None where a name is enough."""
    if not needed and name is not None:
        return None
    if target is None:
        raise UsageError("which server? Such as shop.py:server (with --http or --remove, --name is enough)")
    from toolwire.cli.shared.target import Target, resolve  # noqa: PLC0415 - heavy

    if target.startswith(_CATALOG):  # looked up only: whoever writes the entry need not have the keys
        from toolwire.catalog.tools.names import slug  # noqa: PLC0415

        profile = _profile(target)
        file = Path(target.removeprefix(_CATALOG))
        whole = f"{_CATALOG}{file.absolute()}" if file.suffix else target
        return Target(whole, slug(profile.name), None)
    with redirect_stdout(sys.stderr):  # what the user's file prints is not part of the entry
        return resolve(target)


def _profile(target: str) -> "Profile":
    from toolwire.catalog.profile.model import Profile  # noqa: PLC0415 - heavy

    return Profile.find(target.removeprefix(_CATALOG))


def _secrets(found: "Target") -> list[str]:
    """The variables that a catalogue needs, and that belong into no file."""
    if not found.text.startswith(_CATALOG):
        return []
    profile = _profile(found.text)
    names = [profile.network.proxy_variable] if profile.network.proxy_variable else []
    for secret in profile.secrets.values():
        parts = [each.variable for each in secret.parts]
        in_parts = not secret.variable or (bool(parts) and all(os.environ.get(each) for each in parts))
        # The ones that are set here are meant, and a secret's own variable otherwise.
        names += (
            parts
            if in_parts and not os.environ.get(secret.variable)
            else [secret.variable] * bool(secret.variable)
        )
    return names


def _name(found: "Target | None", given: str | None) -> str:
    """What the client is to call the server."""
    text = given if given is not None or found is None else found.name
    name = _clients.legal_name(text or "")
    if given is not None and name != given:
        hint = f", such as {name!r}" if name else ""
        raise UsageError(f"--name {given!r}: a name has letters, digits, - and _ only{hint}")
    if not name:
        raise UsageError(f"the server is called {text!r}, which no client takes: choose a name with --name")
    return name


def _start(found: "Target") -> tuple[list[str], dict[str, str]]:
    """The arguments and variables that start the server from any folder."""
    serve = ["-m", "toolwire", "serve"]
    head, _, attribute = found.text.rpartition(":")
    if found.path is None or found.text.endswith(".py"):
        return [*serve, str(found.path or found.text)], {}  # a URL is the same everywhere
    if head.endswith(".py"):
        return [*serve, f"{found.path}:{attribute}"], {}
    root = _root(head or found.text)
    return [*serve, found.text], {"PYTHONPATH": root} if root else {}


def _root(module: str) -> str | None:
    """The folder that a client must be told of to find a module; None for one that is installed."""
    from importlib.util import find_spec  # noqa: PLC0415 - beside its only use

    try:
        spec = find_spec(module.partition(".")[0])
    except ValueError:  # a module that was put together by hand
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or []) or [spec.origin or ""]
    ours = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # noqa: PTH109
    known = {os.path.realpath(each) for each in ours if each}
    roots = [str(Path(each).parent) for each in places]
    return next((each for each in roots if os.path.realpath(each) in known), None)


def _variables(given: list[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each or each.startswith("="):
            raise UsageError(f"--env {each!r}: a variable is given as NAME=value")
    return dict(each.split("=", 1) for each in given)


def _facts(client: Client, name: str, where: Path | None, action: str, **more: Any) -> dict[str, Any]:
    return {"client": client.title, "name": name, "file": where and str(where), "action": action, **more}


def _shown(client: Client, entry: Entry, where: Path | None) -> Done:
    if where is None:
        return _own_command(client, entry)
    document = _clients.snippet(client, entry)
    hint = f"This belongs into {where}; the same command with --install puts it there."
    facts = _facts(client, entry.name, where, "shown", entry=document, notes=entry.notes)
    return Done(document, [hint, *entry.notes], facts)


def _own_command(client: Client, entry: Entry) -> Done:
    """The client's own way to add a server, where its file is not for others to write."""
    command = _clients.user_command(client, entry)
    hint = f"Not installed yet: only {client.title} itself writes the servers of a user. Run this command."
    more = {"entry": _clients.snippet(client, entry), "command": command, "notes": entry.notes}
    line = _clients.typed_line(command, sys.platform)
    return Done(line, [hint, *entry.notes], _facts(client, entry.name, None, "command", **more))


def _installed(client: Client, entry: Entry, where: Path | None, *, force: bool) -> Done:
    if where is None:
        return _own_command(client, entry)
    document, mark = _read(where)
    merged = _clients.merge(document, client, entry, str(where), force=force)
    more = {"entry": _clients.snippet(client, entry), "notes": entry.notes}
    if merged == document:
        words = [f"{entry.name} is in {where} already; nothing was changed.", *entry.notes]
        return Done("", words, _facts(client, entry.name, where, "unchanged", **more))
    backup = _save(where, merged, mark, fresh=0o600 if client.token is None else 0o666)  # it may hold a token
    words = [f"{entry.name} is now in {where}{_kept(backup)}.", client.after, *entry.notes]
    return Done("", words, _facts(client, entry.name, where, "installed", backup=backup, **more))


def _removed(client: Client, name: str, where: Path | None) -> Done:
    if where is None:
        command = _clients.user_removal(client, name)
        hint = f"Not removed yet: only {client.title} itself writes the servers of a user. Run this command."
        facts = _facts(client, name, None, "command", command=command)
        return Done(_clients.typed_line(command, sys.platform), [hint], facts)
    if not where.exists():
        raise UsageError(f"there is no {where}, so there is nothing to remove")
    document, mark = _read(where)
    backup = _save(where, _clients.without(document, client, name, str(where)), mark)
    words = [f"{name} is no longer in {where}{_kept(backup)}."]
    return Done("", words, _facts(client, name, where, "removed", backup=backup))


def _read(where: Path) -> tuple[Document, bool]:
    """A client's file, and whether it begins with a byte order mark; a file that is not there is empty."""
    try:
        raw = where.read_bytes()
        return _clients.parse(raw.decode("utf-8-sig"), str(where)), raw.startswith(BOM_UTF8)
    except FileNotFoundError:
        return {}, False
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (byte {error.start}). Nothing was changed") from None
    except OSError as error:
        fail(f"{where} cannot be read: {error.strerror}")


def _save(where: Path, document: Document, mark: bool, fresh: int = 0o666) -> str | None:
    """Write the file in one step, a link's target through the link. Returns the backup of what was there."""
    text = (BOM_UTF8 if mark else b"") + _clients.written(document).encode() + b"\n"
    real = where.resolve()
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        if not real.exists():
            replace_file(real, [text], mode=fresh, use_umask=True)
            return None
        mode = S_IMODE(real.stat().st_mode)
        backup = where.with_name(f"{where.name}.bak")
        replace_file(backup, [real.read_bytes()], mode=mode)
        replace_file(real, [text], mode=mode)
    except OSError as error:
        fail(f"{error.filename or where} cannot be written: {error.strerror}. {where} is as it was")
    return str(backup)


def _kept(backup: str | None) -> str:
    return f" (what was there before: {backup})" if backup else ""


def _tell(done: Done, *, as_json: bool) -> None:
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    data = done.facts if as_json else done.data
    if data:
        typer.echo(data if isinstance(data, str) else _clients.written(data, ascii_only=plain))
    if as_json:
        return
    for line in done.words:
        typer.echo(line, err=True)
