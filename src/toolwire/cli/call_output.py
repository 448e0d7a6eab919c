"""What a tool gave, for people: text as it is, data as JSON, everything else by its kind and size, or as files."""

import base64
import binascii
import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolwire._support.terminal import plain
from toolwire.cli.shared.printing import note, one_line, show_json, size, to_json
from toolwire.errors import ClaudeSDKError

if TYPE_CHECKING:
    from toolwire.tools.client import CallResult


def show(result: "CallResult", *, json: bool, save: Path | None) -> None:
    """Print a result: on stdout, or on stderr if it is an error."""
    shown = list(_shown(result.content, save))
    if json:
        show_json(result.raw)
        return
    if result.structured is not None and not any(block.get("type") == "text" for block in result.content):
        shown.append(to_json(result.structured))
    if result.is_error:
        note("\n".join(shown) or "The tool failed and did not say why.")
    elif shown:
        typer.echo(plain("\n".join(shown)))


def _shown(content: list[dict[str, Any]], save: Path | None) -> Iterator[str]:
    for number, block in enumerate(content, 1):
        kind = block.get("type")
        resource = block.get("resource") if kind == "resource" else None
        resource = resource if isinstance(resource, dict) else {}
        if kind == "text":
            yield str(block.get("text", ""))
        elif kind in {"image", "audio"}:
            yield _data(block.get("data"), block.get("mimeType"), f"{kind}-{number}", save)
        elif "text" in resource:
            yield str(resource["text"])
        elif "blob" in resource:
            yield _data(resource["blob"], resource.get("mimeType"), f"file-{number}", save)
        elif kind == "resource_link":
            yield f"<{one_line(str(block.get('name') or 'resource'))}: {one_line(str(block.get('uri')))}>"
        else:
            yield f"<{one_line(str(kind))}>"


def _data(encoded: Any, mime: Any, stem: str, save: Path | None) -> str:
    kind = mime if isinstance(mime, str) else "application/octet-stream"
    try:
        data = base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return f"<{one_line(kind)}, not base64>"
    told = f"<{one_line(kind)}, {size(len(data))}>"
    if save is None:
        return told
    # The name is ours: what a server calls its file might lead anywhere.
    path = save / (stem + (mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"))
    try:
        save.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise ClaudeSDKError(f"cannot write {path}: {error.strerror}") from error
    return f"{told} saved to {path}"
