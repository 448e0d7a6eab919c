"""Converts the response of an API to the result of a tool: text, data, images or files, with secrets removed."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from toolwire._protocol.json_codec import dumps
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import RawBody, describe_status, is_success, read_body
from toolwire.catalog.values import tidy
from toolwire.openapi.http import Response
from toolwire.openapi.operations import is_text
from toolwire.tools.results.content import Audio, Image, Resource, blob_uri
from toolwire.tools.results.result import error_result
from toolwire.tools.schema.arguments import InvalidArguments, Parameters

LONGEST_ERROR: Final = 4_000
"""Characters of an error's body that are shown to the model."""
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SHOWN_HEADERS: Final = 40


async def to_tool_result(
    response: Response, method: str, scrubber: Scrubber, workers: Workers, output: Parameters | None = None
) -> dict[str, Any]:
    """Convert a response to a tool result.

    With `output`, the status and the JSON body are returned as structured content too; the result is an error if
    they do not match that schema.
    """
    headers = {name: scrubber.text(value) for name, value in response.headers.items()}
    body = await read_body(headers, response.content, scrubber, workers, "binary")
    status = response.status
    if not is_success(status):
        return error_result(_describe_failure(status, headers, body))
    is_json = body is not None and not isinstance(body, RawBody)
    block = _block(status, method, headers, response.content, body)
    result: dict[str, Any] = {"content": [block]}
    if output is not None:
        structured = {"status": status, "result": body} if is_json else {"status": status}
        try:
            output.validate(structured)
        except InvalidArguments as error:
            text = f"{_describe(status)}: it succeeded, but the response does not match its schema ({error})"
            return {"content": [{"type": "text", "text": text}, block], "isError": True}
        result |= {"structuredContent": structured, "isError": False}
    return result


def _block(status: int, method: str, headers: Mapping[str, str], content: bytes, body: Any) -> dict[str, Any]:
    if method == "HEAD":
        lines = [f"{name}: {value}" for name, value in list(headers.items())[:_SHOWN_HEADERS]]
        text = "\n".join([_describe(status), *lines])
    elif not content:
        text = f"{_describe(status)}: success, no content"
    elif not isinstance(body, RawBody):
        text = "null" if body is None else dumps(body).decode()
    elif isinstance(body.content, str):
        text = body.content
    else:
        return _binary_block(body.content, body.media_type)
    return {"type": "text", "text": text}


def _binary_block(raw: bytes, media: str) -> dict[str, Any]:
    if media in _IMAGES:
        return Image(raw, mime_type=media).block()
    if media.startswith("audio/"):
        return Audio(raw, mime_type=media).block()
    if is_text(media):  # includes JSON: if it were valid, it would have been parsed
        return {"type": "text", "text": raw.decode(errors="replace")}
    return Resource(blob_uri(raw), blob=raw, mime_type=media).block()


def _describe_failure(status: int, headers: Mapping[str, str], body: Any) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return describe_status(status, headers, None)
    if isinstance(body, RawBody):
        content = body.content
        text = content if isinstance(content, str) else content.decode(errors="replace")
    else:
        text = "" if body is None else dumps(body).decode()
    text = tidy(text, LONGEST_ERROR)
    return f"{_describe(status)}: {text}" if text else _describe(status)


def _describe(status: int) -> str:
    return describe_status(status, {}, None)
