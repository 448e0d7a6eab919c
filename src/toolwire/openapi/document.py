"""Reads an OpenAPI document and follows the references in it.

Owns which documents are accepted (3.0, 3.1 or Swagger 2.0; JSON or YAML), their limits (size, depth, number of
values), and where a reference may point: to a place in the document or, if allowed, to a file in its folder. No
reference is ever fetched from the network. Must not know what operations and schemas mean.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from toolwire._protocol.json_codec import loads
from toolwire._support.schema_structure import resolve
from toolwire.errors import UsageError
from toolwire.openapi.yaml_reader import read_yaml

Version = Literal["2.0", "3.0", "3.1"]

MOST_BYTES: Final = 64 * 1024 * 1024
MOST_NODES: Final = 5_000_000
MOST_DEPTH: Final = 150
MOST_FILES: Final = 1_000
_LONGEST_CHAIN: Final = 50
_MAIN: Final = ""
_YAML: Final = (".yaml", ".yml")


class Unusable(Exception):  # noqa: N818 - it names the operation, and never leaves this package
    """A part of the document that cannot be used. The text is the reason."""


@dataclass(frozen=True)
class Place:
    """A place in the document: its file ("" for the document itself) and a JSON pointer."""

    file: str
    pointer: str


@dataclass
class Document:
    """A parsed document, with the files that it refers to."""

    data: Mapping[str, Any]
    version: Version
    source: str
    """The path or URL of the document."""
    folder: Path | None = None
    """The folder whose files it may refer to; None if references to other files are not allowed."""
    files: dict[str, Any] = field(default_factory=dict)
    """The other files that were read, by path."""
    digests: dict[str, bytes | None] = field(default_factory=dict)
    """A digest of each other file that a reference named, by path; None for one that could not be read."""
    main: Path | None = None
    """The document's own path."""
    _bytes: int = 0

    def locate(self, reference: str, file: str) -> Place:
        """Return the place that a reference in `file` points to. `Unusable` if it may not be followed."""
        address, _, pointer = reference.partition("#")
        return Place(file if not address else self._open(address, file, reference), pointer)

    def get(self, place: Place) -> Any:
        """Return the value at a place. `Unusable` if there is none."""
        root = self.data if place.file == _MAIN else self.files[place.file]
        found = resolve(f"#{place.pointer}", root) if isinstance(root, Mapping) else None
        if found is None:
            where = f" of {place.file}" if place.file else ""
            raise Unusable(f"it refers to #{place.pointer[:200]}{where}, which does not exist")
        return found

    def follow(self, node: Any, file: str = _MAIN) -> tuple[Any, str]:
        """Follow `$ref`s until there is none. Returns the node and the file that it is in."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(node, Mapping) or not isinstance(node.get("$ref"), str):
                return node, file
            place = self.locate(node["$ref"], file)
            node, file = self.get(place), place.file
        raise Unusable(f"it has a chain of more than {_LONGEST_CHAIN} references")

    def follow_object(self, node: Any, file: str = _MAIN) -> tuple[Mapping[str, Any], str]:
        """Follow `$ref`s, as `follow` does. Returns an empty object if they do not lead to an object."""
        found, file = self.follow(node, file)
        return as_object(found), file

    def _open(self, address: str, file: str, reference: str) -> str:
        """Read the file that a reference points to, and return its key in `files`."""
        shown = reference[:200]
        try:
            parts = urlsplit(address)
        except ValueError:
            raise Unusable(f"it refers to {shown!r}, which is not a valid URL") from None
        if parts.scheme or parts.netloc or self.main is None:
            raise Unusable(
                f"it refers to {shown!r}, which is outside the document: references are never fetched"
            )
        base = self.main if file == _MAIN else Path(file)
        path = (base.parent / unquote(parts.path)).resolve()
        if path == self.main:
            return _MAIN
        if self.folder is None:
            raise Unusable(
                f"it refers to {shown!r}, another file: external_files=True (--external-files) allows files in the "
                "document's folder"
            )
        if not path.is_relative_to(self.folder):
            raise Unusable(f"it refers to {shown!r}, which is outside the document's folder")
        if str(path) not in self.files:
            if len(self.files) >= MOST_FILES:
                raise Unusable(f"the document refers to more than {MOST_FILES:,} files")
            self.digests[str(path)] = None
            try:
                content = read_bytes(path, MOST_BYTES - self._bytes)
                self.digests[str(path)] = _digest(content)
                self._bytes += len(content)
                self.files[str(path)] = parse(content, path.name)
            except UsageError as error:
                raise Unusable(f"it refers to {shown!r}: {error}") from error
        return str(path)


def as_object(value: Any) -> Mapping[str, Any]:
    """Return an object of a document; an empty one in place of any other value."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list of a document; an empty one in place of any other value."""
    return value if isinstance(value, list) else []


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file, up to a limit. `UsageError` says why it cannot be read."""
    try:
        if not path.is_file():
            raise UsageError(f"{path} {'is not a file' if path.exists() else 'does not exist'}")
        with path.open("rb") as opened:
            content = opened.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UsageError(
            f"{path} is too large: a document and its files may have {MOST_BYTES:,} bytes in total"
        )
    return content


def have_changed(digests: Mapping[str, bytes | None]) -> bool:
    """Return True if one of the files has other content than when its digest was made."""
    for path, digest in digests.items():
        try:
            found: bytes | None = _digest(read_bytes(Path(path)))
        except UsageError:
            found = None
        if found != digest:
            return True
    return False


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def open_document(
    content: bytes, source: str, *, path: Path | None = None, external_files: bool = False
) -> Document:
    """Parse the bytes of a document. `UsageError` if it is not an OpenAPI document."""
    data = parse(content, source)
    version = _find_version(data, source)
    if not isinstance(data.get("paths", {}), Mapping):
        raise UsageError(f"{source}: `paths` must be an object")
    main = path.resolve() if path is not None else None
    folder = main.parent if main is not None and external_files else None
    return Document(data, version, source, folder, main=main, _bytes=len(content))


def parse(content: bytes, name: str) -> Any:
    """Parse JSON or YAML. `UsageError` says what is wrong and where."""
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is neither UTF-8 nor UTF-16: {error.reason} at byte {error.start:,}"
        ) from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            try:
                data = _parse_json(text)
            except ValueError:
                if not name.lower().partition("?")[0].endswith(_YAML):
                    raise
            else:
                _measure(data)
                return data
        return read_yaml(text, most_nodes=MOST_NODES, most_depth=MOST_DEPTH)
    except RecursionError:
        raise UsageError(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{name} is neither JSON nor YAML: {error}") from None


def _parse_json(text: str) -> Any:
    try:
        return loads(text.encode())
    except ValueError:
        # Real documents have control characters and lone surrogates in strings. Texts for the model are cleaned
        # later.
        return json.loads(text, strict=False, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not valid JSON")


def _measure(data: Any) -> None:
    """Reject a document that is too deep or has too many values. Does not recurse."""
    stack, nodes = [(data, 1)], 0
    while stack:
        each, depth = stack.pop()
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")
        inner = each.values() if isinstance(each, dict) else each
        nodes += len(each)
        if nodes > MOST_NODES:
            raise ValueError(f"it has more than {MOST_NODES:,} values")
        stack.extend((value, depth + 1) for value in inner if isinstance(value, dict | list))


def _find_version(data: Any, source: str) -> Version:
    top = as_object(data)
    swagger, openapi = str(top.get("swagger", "")), str(top.get("openapi", ""))
    if swagger.startswith("2"):
        return "2.0"
    if openapi.startswith("3.0") or openapi == "3":
        return "3.0"
    if openapi.startswith("3."):
        return "3.1"
    if swagger or openapi:
        raise UsageError(
            f"{source} is OpenAPI {(swagger or openapi)[:20]!r}; versions 2.0, 3.0 and 3.1 are supported"
        )
    raise UsageError(
        f"{source} is not an OpenAPI document: it has neither `openapi` nor `swagger` at its top level"
    )
