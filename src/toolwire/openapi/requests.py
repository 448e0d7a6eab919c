"""Builds the HTTP request of a call: every argument goes to its place, escaped so that it cannot affect others.
Pure.

Arguments have already been validated against the operation's schema, so all text can be encoded. The request
contains no credentials; those are added when it is sent. If a request cannot be built, `CatalogError` says why and
nothing is sent.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from toolwire.catalog.http.requests import OutgoingRequest, write_json
from toolwire.catalog.profile.rules import climbs
from toolwire.errors import CatalogError
from toolwire.openapi.operations import BODY, Body, Field, Operation, Parameter
from toolwire.openapi.styles import Pairs, to_json_text, to_text, write_header, write_path, write_query

_LONGEST_TARGET: Final = 32 * 1024
_LONGEST_HEADER: Final = 8 * 1024
_MEDIA: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:;[ -~]*)?")
_ACCEPT: Final = "application/json, application/*+json;q=0.9, text/*;q=0.8, */*;q=0.5"
_USUAL: Final = Field()


def build_request(operation: Operation, arguments: Mapping[str, Any]) -> OutgoingRequest:
    """Build the request of an operation with these arguments."""
    path, query, cookies = operation.path, Pairs(), Pairs()
    headers = {"Accept": _ACCEPT}
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if parameter.place == "path":
            path = _fill(path, parameter, value)
        elif value is None:
            continue
        elif parameter.place == "query":
            query += write_query(parameter.name, value, parameter.style)
        elif parameter.place == "cookie":
            cookies += write_query(parameter.name, value, parameter.style)
        else:
            headers[parameter.name] = _check_header(parameter, write_header(value, parameter.style))
    if climbs(path):
        raise CatalogError(f"the arguments would change the path to {path[:200]!r}; nothing was sent")
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={text}" for name, text in cookies)
    content = b""
    if operation.body is not None and BODY in arguments:
        content, headers["Content-Type"] = write_body(operation.body, arguments[BODY])
    pairs = "&".join(filter(None, (operation.query, *(f"{name}={text}" for name, text in query))))
    target = f"{path}?{pairs}" if pairs else path
    if len(target) > _LONGEST_TARGET:
        raise CatalogError(
            f"the path and query would have {len(target):,} characters, more than the {_LONGEST_TARGET:,} allowed; "
            "nothing was sent"
        )
    return OutgoingRequest(operation.method, target, headers, content)


def write_body(body: Body, value: Any) -> tuple[bytes, str]:
    """Encode a body. Returns its bytes and content type."""
    if body.kind == "json":
        return write_json(value), body.media_type
    if body.kind == "text":
        charset = "" if "charset" in body.media_type.lower() else "; charset=utf-8"
        return to_text(value).encode(), body.media_type + charset
    if body.kind == "binary":
        return _decode(value, BODY), body.media_type
    if not isinstance(value, Mapping):
        raise CatalogError("the body of a form must be an object; nothing was sent")
    if body.kind == "form":
        pairs = [
            pair
            for name, each in value.items()
            for pair in write_query(name, each, body.fields.get(name, _USUAL).style, quote_plus)
        ]
        return "&".join(f"{name}={text}" for name, text in pairs).encode(), body.media_type
    return _write_multipart(body, value)


def _write_multipart(body: Body, value: Mapping[str, Any]) -> tuple[bytes, str]:
    parts = [
        part for name, each in value.items() for part in _parts(name, each, body.fields.get(name, _USUAL))
    ]
    while True:
        boundary = secrets.token_hex(16)
        if not any(boundary.encode() in content for _, content in parts):
            break
    pieces: list[bytes] = []
    for head, content in parts:
        pieces += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), content, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    return b"".join(pieces), f"multipart/form-data; boundary={boundary}"


def _parts(name: str, value: Any, field: Field) -> list[tuple[str, bytes]]:
    """Return the parts of a field, as headers and content: one part, or one for each value of a list."""
    if value is None:
        return []
    if isinstance(value, list) and field.style.kind != "json":
        return [part for each in value for part in _parts(name, each, field)]
    where = f'Content-Disposition: form-data; name="{_quote(name)}"'
    if field.file:
        file = value if isinstance(value, Mapping) else {"base64": value}
        content = file["text"].encode() if "text" in file else _decode(file.get("base64"), name)
        media = str(file.get("content_type") or field.content_type or "application/octet-stream")
        if not _MEDIA.fullmatch(media):
            raise CatalogError(f"the content type of {name} is not valid: {media[:80]!r}; nothing was sent")
        filename = _quote(str(file.get("filename") or name))
        return [(f'{where}; filename="{filename}"\r\nContent-Type: {media}', content)]
    nested = field.style.kind == "json" or isinstance(value, Mapping)
    media = field.content_type or ("application/json" if nested else "")
    text = to_json_text(value) if nested else to_text(value)
    return [(f"{where}\r\nContent-Type: {media}" if media else where, text.encode())]


def _fill(path: str, parameter: Parameter, value: Any) -> str:
    """Replace the placeholder of a path parameter with its value."""
    text = "" if value is None else write_path(parameter.name, value, parameter.style)
    bare = text if parameter.style.kind == "simple" else text[1:]
    is_blank = parameter.style.kind != "matrix" and value in ("", [], {}, [""])
    if not bare or is_blank:
        raise CatalogError(
            f"{parameter.argument} must not be empty: that would change the path; nothing was sent"
        )
    if climbs(to_text(value)) if not isinstance(value, Mapping | list) else climbs(text):
        raise CatalogError(f"{parameter.argument} must not have . or .. as a path segment; nothing was sent")
    return path.replace(f"{{{parameter.name}}}", text)


def _check_header(parameter: Parameter, text: str) -> str:
    """Return the value of a header parameter, or raise if it could break out of the header or is too long."""
    if not text.isascii() or not text.replace("\t", " ").isprintable() or text != text.strip():
        raise CatalogError(
            f"{parameter.argument} is sent as a header: it must be printable ASCII without leading or trailing "
            "spaces; nothing was sent"
        )
    if len(text) > _LONGEST_HEADER:
        raise CatalogError(f"{parameter.argument} is too long for a header; nothing was sent")
    return text


def _decode(value: Any, name: str) -> bytes:
    try:
        joined = "".join(str(value).split())
        return base64.b64decode(joined + "=" * (-len(joined) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise CatalogError(f"{name} is not valid base64; nothing was sent") from None


def _quote(name: str) -> str:
    """Escape a name for `Content-Disposition`, as HTML forms do."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").replace("\0", "%00")
