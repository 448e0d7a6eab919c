"""`toolwire pack`: makes a bundle (.mcpb) that Claude Desktop installs with one click.

Owns the bundle's manifest and contents: toolwire itself, the target's own files, and the names of its keys, which
the user enters at installation. The bundle never contains their values. The host's `uv` installs the dependencies.
"""

import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolwire._support.files import replace_file
from toolwire._version import __version__
from toolwire.cli.config import find_server, secret_variables
from toolwire.cli.config_clients import legal_name
from toolwire.cli.shared.printing import fail, size, to_json
from toolwire.cli.shared.target_options import OPENAPI, BaseUrlOption, TargetArgument, list_tools, run
from toolwire.cli.shared.user_module import files_of
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target

_MANIFEST_VERSION: Final = "0.4"
_ROOT: Final = "${__dirname}"
_APP: Final = "app"
_TIME: Final = (1980, 1, 1, 0, 0, 0)  # the same input makes the same bundle
_MOST_TOOLS: Final = 200  # in the manifest, which is shown to the user; the server offers all
_LONGEST: Final = 300  # characters of a description there
_SECRET_FILES: Final = (".env", ".netrc", ".pypirc", "credentials", "id_rsa", "id_ed25519")
_EXAMPLES: Final = (".example", ".sample", ".template")


@dataclass
class _Bundle:
    """The parts of a bundle that depend on the kind of target."""

    serve: list[str]
    """The arguments of `toolwire serve`."""
    entry_point: str
    contents: dict[str, Path] = field(default_factory=dict)
    """Files of the user, by their path in the bundle."""
    tools: list[dict[str, Any]] | None = None
    """None if the tools are known only at run time."""
    version: str = "1.0.0"


def pack(  # noqa: PLR0917 - typer takes them by position
    target: TargetArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The bundle. Default: NAME.mcpb.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the bundle. Default: the server's name.")] = None,
    version: Annotated[str | None, typer.Option(help="Its version. Default: the server's.")] = None,
    description: Annotated[
        str | None, typer.Option(help="One sentence for the user who installs it.")
    ] = None,
    author: Annotated[str, typer.Option(help="Who made it.")] = "unknown",
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A variable with a key, which the user enters at installation. Repeatable."
        ),
    ] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="A package that your file imports. Repeatable."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="A file or folder that your tools read, in the folder of the target. Repeatable.",
        ),
    ] = None,
    base_url: BaseUrlOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
) -> None:
    """Make a bundle (.mcpb) of a target that Claude Desktop installs with one click.

    The user enters keys at installation. Those of a catalogue or an OpenAPI document are known; name others with
    --env. The values of keys are never written into the bundle.

    Examples:

      toolwire pack app.py

      toolwire pack app.py:calc --env SHOP_KEY --with requests -o shop.mcpb

      toolwire pack catalog:agentpmt -o agentpmt.mcpb

      toolwire pack openapi:petstore.yaml --base-url https://petstore.example.com/v1
    """
    found = find_server(target)
    called = _choose_name(name or found.name)
    place = (out or Path(f"{called}.mcpb")).absolute()
    if place.exists() and not force:
        raise UsageError(f"{place} exists: choose another with --out, or replace it with --force")
    bundle = _make_bundle(found, file or [])
    if base_url is not None:
        if not found.text.startswith(OPENAPI):
            raise UsageError(f"--base-url only applies to {OPENAPI} targets, and {found.text} is not one")
        bundle.serve += ["--base-url", base_url]
    variables = [*dict.fromkeys([*secret_variables(found, all_of_them=True), *(env or [])])]
    _check_variables(variables)
    manifest = _make_manifest(
        bundle, called, version or bundle.version, description or _describe(bundle, called), author, variables
    )
    _write(place, _iter_contents(manifest, bundle, _list_requirements(found, requires or [])))
    typer.echo(f"{place} ({size(place.stat().st_size)})")
    asked = f" It asks for {', '.join(variables)}." if variables else ""
    typer.echo(f"Open it with Claude Desktop, or any other MCP host, to install {called}.{asked}", err=True)


def _choose_name(text: str) -> str:
    name = legal_name(text)
    if not name:
        raise UsageError(f"{text!r} has no letter or digit for a name: choose one with --name")
    return name


def _check_variables(names: Iterable[str]) -> None:
    for each in names:
        if not each.isidentifier() or not each.isascii():
            hint = "; only the name, never the value" if "=" in each else ""
            wrong = each.partition("=")[0]  # what follows may be a key
            raise UsageError(f"--env {wrong}: write the name of a variable, such as SHOP_KEY{hint}")


def _make_bundle(found: "Target", extra: list[Path]) -> _Bundle:
    if found.path is not None:
        return _bundle_file(found, extra)
    if extra:
        raise UsageError(f"--file only applies to files, and {found.text} is not one")
    kind, _, rest = found.text.partition(":")
    if kind in {"http", "https"}:
        raise UsageError(
            f"{found.text} is a server that runs elsewhere: add its URL to the client, as `toolwire config` shows"
        )
    document = Path(rest)
    built_in = not document.suffix and not found.text.startswith(OPENAPI)
    if built_in or "://" in rest:  # a built-in profile, or a document that is read from its address
        return _Bundle([found.text], "server/toolwire/__main__.py")
    inside = f"{_APP}/{document.name}"
    return _Bundle([f"{kind}:{inside}"], inside, {inside: document})


def _bundle_file(found: "Target", extra: list[Path]) -> _Bundle:
    assert found.path is not None  # noqa: S101 - the caller has checked it
    root = found.path.parent
    used = [each for each in files_of(found.modules) if each.is_relative_to(root)]
    if found.path not in used:
        used.append(found.path)
    contents = {f"{_APP}/{each.relative_to(root).as_posix()}": each for each in used}
    for each in extra:
        contents.update(_find_files(each.resolve(), root))
    head, _, attribute = found.text.rpartition(":")
    name = f":{attribute}" if head.endswith(".py") else ""
    if not found.text.removesuffix(name).endswith(".py"):
        raise UsageError(f"pack takes a file, such as app.py, and {found.text} is a module: name its file")
    entry = f"{_APP}/{found.path.relative_to(root).as_posix()}"
    tools = run(list_tools, found)
    return _Bundle(
        [entry + name], entry, contents, tools, str(getattr(found.server, "version", None) or "1.0.0")
    )


def _find_files(path: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a path that the user names, by their path in the bundle."""
    if not path.is_relative_to(root):
        raise UsageError(f"--file {path} is not in {root}, the folder of the target")
    if not path.exists():
        raise UsageError(f"--file {path} does not exist")
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    for each in found:
        real = each.resolve()  # a link may lead anywhere
        if not real.is_relative_to(root):
            raise UsageError(f"{each} links to {real}, which is not in {root}, the folder of the target")
        if _is_secret(each) or _is_secret(real):
            raise UsageError(
                f"{each} looks like a secret, which must not be in a bundle: name its variable with --env"
            )
        if each.is_file() and "__pycache__" not in each.parts:
            yield f"{_APP}/{each.relative_to(root).as_posix()}", each


def _is_secret(path: Path) -> bool:
    name = path.name.lower()
    own = name.startswith(".env.") and not name.endswith(_EXAMPLES)
    return own or name in _SECRET_FILES or path.suffix.lower() in {".pem", ".key"}


def _describe(bundle: _Bundle, name: str) -> str:
    if bundle.tools is None:
        return f"The tools of {bundle.serve[0]}"
    names = [str(tool.get("name")) for tool in bundle.tools[:5]]
    more = "" if len(bundle.tools) <= len(names) else f" and {len(bundle.tools) - len(names)} more"
    return f"{name}: {', '.join(names)}{more}" if names else name


def _make_manifest(  # noqa: PLR0917 - the fields of a manifest
    bundle: _Bundle, name: str, version: str, description: str, author: str, variables: list[str]
) -> dict[str, Any]:
    command = ["run", "--quiet", "--directory", _ROOT, "python", "-m", "toolwire", "serve", *bundle.serve]
    environment = {variable: f"${{user_config.{variable.lower()}}}" for variable in variables}
    manifest: dict[str, Any] = {
        "manifest_version": _MANIFEST_VERSION,
        "name": name,
        "version": version,
        "description": description,
        "author": {"name": author},
        "server": {
            "type": "uv",
            "entry_point": bundle.entry_point,
            "mcp_config": {
                "command": "uv",
                "args": command,
                "env": {"PYTHONPATH": f"{_ROOT}/server", **environment},
            },
        },
        "compatibility": {
            "platforms": ["darwin", "linux", "win32"],
            "runtimes": {"python": ">=3.11"},
        },
    }
    if bundle.tools is None or len(bundle.tools) > _MOST_TOOLS:
        manifest["tools_generated"] = True
    if bundle.tools is not None:
        manifest["tools"] = [
            {"name": str(tool["name"]), "description": str(tool.get("description") or "")[:_LONGEST]}
            for tool in bundle.tools[:_MOST_TOOLS]
        ]
    if variables:
        manifest["user_config"] = {
            variable.lower(): {
                "type": "string",
                "title": variable,
                "description": f"The value of {variable}, which the tools need.",
                "sensitive": True,
                "required": True,
            }
            for variable in variables
        }
    return manifest


def _list_requirements(found: "Target", given: list[str]) -> list[str]:
    """List the packages that the server needs: those of toolwire, of the user's project, and those given."""
    import tomllib  # noqa: PLC0415 - only here
    from importlib.metadata import requires  # noqa: PLC0415 - slow to load

    ours = [each for each in requires("toolwire") or [] if "extra ==" not in each]
    if found.text.startswith(OPENAPI):
        ours.append("pyyaml>=6")
    project = found.path.parent / "pyproject.toml" if found.path is not None else None
    theirs: list[str] = []
    if project is not None and project.is_file():
        try:
            settings = tomllib.loads(project.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {project}: {error}") from None
        theirs = settings.get("project", {}).get("dependencies", [])
    names = [*ours, *(each for each in theirs if not each.startswith("toolwire")), *given]
    return [*dict.fromkeys(names)]


def _iter_contents(
    manifest: dict[str, Any], bundle: _Bundle, requirements: list[str]
) -> Iterator[tuple[str, bytes]]:
    yield "manifest.json", to_json(manifest).encode()
    yield "pyproject.toml", _project(manifest["name"], requirements).encode()
    for path, file in bundle.contents.items():
        yield path, file.read_bytes()
    for path, source in _iter_package(files("toolwire"), "server/toolwire"):
        yield path, source.read_bytes()


def _project(name: str, requirements: list[str]) -> str:
    listed = "".join(f"    {to_json(each)},\n" for each in requirements)
    return (
        f"# The dependencies of the server. Made by toolwire {__version__}, which is in server/.\n"
        f'[project]\nname = "{name.lower()}-bundle"\nversion = "0"\nrequires-python = ">=3.11"\n'
        f"dependencies = [\n{listed}]\n\n[tool.uv]\npackage = false\n"
    )


def _iter_package(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir() and each.name != "__pycache__":
            yield from _iter_package(each, f"{path}/{each.name}")
        elif each.is_file() and not each.name.endswith((".pyc", ".pyi")):
            yield f"{path}/{each.name}", each


def _write(place: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Write the bundle, whole or not at all."""
    made = io.BytesIO()
    try:
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in contents:
                entry = zipfile.ZipInfo(path, _TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data)
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, [made.getvalue()], mode=0o644)
    except OSError as error:
        fail(f"cannot write {os.fspath(error.filename or place)}: {error.strerror}")
