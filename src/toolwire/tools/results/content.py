"""Content that a tool may return besides text and data: images, audio, resources and links to resources.

A tool returns one of these, alone or in a list with text, and each becomes one MCP content block. A mistake (no
bytes, a missing file, both text and blob) raises ValueError when the object is made, so that the CLI does not
discard the result later. `path=` is read once, when the object is made: the only I/O of this module.

Owns the form of these blocks. Must not know results, which `result` owns.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from os import PathLike, fspath
from os.path import splitext
from typing import Any, ClassVar, Literal

from toolwire._support.record import Record

__all__ = ["Audio", "Content", "Image", "Resource", "ResourceLink", "Text", "blob_uri", "from_bytes", "sniff"]

Audience = Sequence[Literal["user", "assistant"]]
ROLES = ("user", "assistant")
Bytes = bytes | bytearray | memoryview

_STARTS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_MP3_SECOND_BYTES = frozenset(b"\xfb\xfa\xf3\xf2\xe3\xe2")  # frame sync, a known version, layer III

# Our own small table: the `mimetypes` module reads files of the operating system, which differ.
_SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".avif": "image/avif",
    ".heic": "image/heic",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".aac": "audio/aac",
}


def sniff(data: bytes) -> str | None:
    """Return the MIME type by the first bytes: PNG, JPEG, GIF, WebP, WAV, MP3, Ogg, FLAC; None for others."""
    for start, mime_type in _STARTS:
        if data.startswith(start):
            return mime_type
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12])
    if len(data) > 2 and data[0] == 0xFF and data[1] in _MP3_SECOND_BYTES:  # noqa: PLR2004 - a header's bytes
        return "audio/mpeg" if data[2] >> 4 != 0xF and data[2] >> 2 & 3 != 3 else None  # noqa: PLR2004 - as above
    return None


@dataclass(repr=False, eq=False, kw_only=True)
class _Annotated(Record):
    """The fields that every block may have: hints for the client, and `_meta`, which the model does not see."""

    audience: Audience | None = None
    priority: float | None = None
    meta: dict[str, Any] | None = None

    def _check_annotations(self) -> None:
        if isinstance(self.audience, str) or any(each not in ROLES for each in self.audience or ()):
            raise ValueError(f"audience must be a list of 'user' and 'assistant', not {self.audience!r}")
        if self.priority is not None and (
            type(self.priority) not in (int, float) or not 0 <= self.priority <= 1
        ):
            raise ValueError(f"priority must be from 0 to 1, not {self.priority!r}")

    def _add_annotations(self, block: dict[str, Any]) -> dict[str, Any]:
        notes: dict[str, Any] = {}
        if self.audience is not None:
            notes["audience"] = list(self.audience)
        if self.priority is not None:
            notes["priority"] = self.priority
        if notes:
            block["annotations"] = notes
        if self.meta is not None:
            block["_meta"] = self.meta
        return block


@dataclass(repr=False, eq=False)
class Text(_Annotated):
    """Text with hints or `_meta`. Without these, return a `str`."""

    text: str

    def __post_init__(self) -> None:
        self._check_annotations()
        if not isinstance(self.text, str):
            raise ValueError(f"Text needs a str, not {type(self.text).__name__}")  # noqa: TRY004 - one class for all

    def block(self) -> dict[str, Any]:
        """Return the content block."""
        return self._add_annotations({"type": "text", "text": self.text})


@dataclass(repr=False, eq=False)
class _Media(_Annotated):
    """Bytes of one kind, given directly or as the path of a file."""

    kind: ClassVar[str]
    data: Bytes | None = field(default=None, repr=False)
    path: InitVar[str | PathLike[str] | None] = None
    mime_type: str | None = None

    def __post_init__(self, path: str | PathLike[str] | None) -> None:
        self._check_annotations()
        name = type(self).__name__
        if (self.data is None) == (path is None):
            raise ValueError(f"{name} needs either data or path")
        self.data = _read(name, path) if path is not None else _to_bytes(name, self.data)
        if not self.data:
            raise ValueError(f"{name} has no bytes" if path is None else f"{name} is empty: {fspath(path)}")
        self.mime_type = self.mime_type or sniff(self.data) or _type_by_suffix(path)
        if self.mime_type is None:
            raise ValueError(f"{name} has an unknown type: give mime_type, such as {self.kind}/...")
        if not str(self.mime_type).startswith(f"{self.kind}/"):
            raise ValueError(f"{name} cannot be {self.mime_type}")

    def block(self) -> dict[str, Any]:
        """Return the content block."""
        data = b64encode(self.data or b"").decode()
        return self._add_annotations({"type": self.kind, "data": data, "mimeType": self.mime_type})


@dataclass(repr=False, eq=False)
class Image(_Media):
    """An image: `Image(png_bytes)` or `Image(path="plot.png")`.

    The type comes from `mime_type`, else from the bytes, else from the file's name. The model sees PNG, JPEG, GIF
    and WebP; images of other types are saved by the CLI to a file, whose name the model gets.
    """

    kind: ClassVar[str] = "image"


@dataclass(repr=False, eq=False)
class Audio(_Media):
    """Audio, made like `Image`. The CLI saves it to a file, whose name the model gets."""

    kind: ClassVar[str] = "audio"


@dataclass(repr=False, eq=False)
class Resource(_Annotated):
    """A document inside the result. The model reads `text`; the CLI saves `blob` to a file."""

    uri: str
    text: str | None = None
    blob: Bytes | None = field(default=None, repr=False)
    mime_type: str | None = None

    def __post_init__(self) -> None:
        self._check_annotations()
        _require_text("Resource", "uri", self.uri)
        if (self.text is None) == (self.blob is None):
            raise ValueError("Resource needs either text or blob")
        if self.text is not None and not isinstance(self.text, str):
            raise ValueError(f"Resource text must be a str, not {type(self.text).__name__}; bytes go to blob")
        if self.blob is not None:
            self.blob = _to_bytes("Resource", self.blob)
            self.mime_type = self.mime_type or sniff(self.blob) or "application/octet-stream"

    def block(self) -> dict[str, Any]:
        """Return the content block."""
        inner: dict[str, Any] = {"uri": self.uri}
        if self.mime_type is not None:
            inner["mimeType"] = self.mime_type
        if self.blob is None:
            inner["text"] = self.text
        else:
            inner["blob"] = b64encode(self.blob).decode()
        return self._add_annotations({"type": "resource", "resource": inner})


@dataclass(repr=False, eq=False)
class ResourceLink(_Annotated):
    """A link to a document that the client may read; the model sees name, address and description."""

    uri: str
    name: str
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        self._check_annotations()
        _require_text("ResourceLink", "uri", self.uri)
        _require_text("ResourceLink", "name", self.name)
        if self.size is not None and (type(self.size) is not int or self.size < 0):
            raise ValueError(f"ResourceLink size must be a number of bytes, not {self.size!r}")

    def block(self) -> dict[str, Any]:
        """Return the content block."""
        block: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        extra = {"title": self.title, "description": self.description, "mimeType": self.mime_type}
        block.update({key: value for key, value in extra.items() if value is not None})
        if self.size is not None:
            block["size"] = self.size
        return self._add_annotations(block)


Content = Text | Image | Audio | Resource | ResourceLink


def from_bytes(data: Bytes) -> Content:
    """Make content from bytes: an image or audio if they start like one, else a resource with a blob."""
    raw = bytes(data)
    mime_type = sniff(raw)
    if mime_type is None:
        return Resource(blob_uri(raw), blob=raw)
    return Image(raw) if mime_type.startswith("image/") else Audio(raw)


def blob_uri(data: bytes) -> str:
    """Make an address for bytes: the same bytes always get the same address."""
    from hashlib import sha256  # noqa: PLC0415 - rare, and it loads OpenSSL

    return f"toolwire://bytes/{sha256(data).hexdigest()[:32]}"


def _read(name: str, path: str | PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - takes str and any PathLike
            return file.read()
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error}") from error


def _to_bytes(name: str, data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise ValueError(f"{name} needs bytes, not {type(data).__name__}")


def _type_by_suffix(path: str | PathLike[str] | None) -> str | None:
    return None if path is None else _SUFFIXES.get(splitext(path)[1].lower())  # noqa: PTH122 - pathlib costs an import


def _require_text(name: str, field_name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} needs a {field_name}, not {value!r}")
