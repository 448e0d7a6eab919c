"""A session as one self-contained HTML page: no scripts, no external links, nothing loaded.

Everything in a transcript is treated as hostile. Texts are escaped; responses are rendered as Markdown without
HTML, links or external pictures; pictures are shown only if their bytes are those of a picture. As a second line of
defence, a Content-Security-Policy makes the browser refuse all but the page's own style and its pictures.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib import resources
from typing import Any, Final

from toolwire._support.words import reveal
from toolwire.sessions import entries, recorded
from toolwire.sessions.cost import read_cost
from toolwire.sessions.export_header import describe_header
from toolwire.sessions.export_markdown import cut
from toolwire.sessions.recorded import Call, Message, Other, Picture, RecordedSession, Result, Subagent, Text

_LARGEST_PICTURE: Final = 8 << 20
_LARGEST_PICTURES: Final = 64 << 20
"""Bytes of one picture, and of all pictures of a page."""
_LONGEST_MARKDOWN: Final = 50_000
_LONGEST_GIST: Final = 120
_MOST_PROMPTS: Final = 500
_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant", "tool": "Result of a call that is missing"}


def render(session: RecordedSession) -> Iterator[str]:
    """Yield the page, in pieces."""
    return _Page(session).render()


class _Page:
    def __init__(self, session: RecordedSession) -> None:
        self._session = session
        self._number = 0
        self._prompts: list[tuple[int, str]] = []
        self._prompt_count = 0
        self._picture_bytes = 0

    def render(self) -> Iterator[str]:
        header = describe_header(self._session.describe(), read_cost(self._session))
        title = _line(header.title)
        style = _read_style()
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        yield (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            f"style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\">\n"
            '<meta name="referrer" content="no-referrer">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n<dl>\n"
        )
        for name, value in header.facts:
            yield f"<dt>{escape(name)}</dt><dd>{_line(value)}</dd>\n"
        yield '</dl>\n<p><a href="#prompts">List of prompts</a></p>\n</header>\n<main>\n'
        conversation = self._session.read_conversation()
        yield from self._render_messages(conversation, top=True)
        for subagent in conversation.list_remaining():
            yield from self._render_subagent(subagent)
        yield "</main>\n"
        yield from self._render_prompts()
        yield "</body>\n</html>\n"

    def _render_prompts(self) -> Iterator[str]:
        yield '<nav id="prompts" aria-label="Prompts">\n<h2>Prompts</h2>\n<ol>\n'
        for number, text in self._prompts:
            yield f'<li><a href="#m{number}">{text}</a></li>\n'
        yield "</ol>\n"
        if more := self._prompt_count - len(self._prompts):
            yield f'<p class="note">and {more:,} more</p>\n'
        yield "</nav>\n"

    def _render_messages(
        self, messages: "recorded.Conversation | Iterator[Message]", *, top: bool = False
    ) -> Iterator[str]:
        """Render messages, and join consecutive ones of the assistant or a tool."""
        before = ""
        for message in messages:
            if message.speaker != before or message.speaker == "user":
                if before:
                    yield "</article>\n"
                self._number += 1
                when = _line(message.timestamp[:19].replace("T", " "))
                stamp = f"<time>{when}</time>" if when else ""
                yield f'<article class="{message.speaker}" id="m{self._number}">\n'
                yield f"<h2>{_SPEAKERS[message.speaker]} {stamp}</h2>\n"
                before = message.speaker
            for part in message.parts:
                if top and isinstance(part, Text) and part.kind == "prompt":
                    self._add_prompt(part.text)
                yield from self._render_part(part)
        if before:
            yield "</article>\n"

    def _add_prompt(self, text: str) -> None:
        self._prompt_count += 1
        if len(self._prompts) < _MOST_PROMPTS:
            self._prompts.append((self._number, _gist(text)))

    def _render_part(self, part: recorded.Part) -> Iterator[str]:
        match part:
            case Text(kind="answer", text=text):
                yield _render_answer(text)
            case Text(kind="prompt", text=text):
                yield _render_plain(text)
            case Text(kind=kind, text=text):
                label = "Thinking" if kind == "thinking" else "Summary of the earlier conversation"
                yield f'<details class="{kind}">\n<summary>{label}</summary>\n<div class="body">'
                yield _render_plain(text)
                yield "</div>\n</details>\n"
            case Picture():
                yield self._render_picture(part)
            case Other(kind=kind, text=text):
                yield f'<p class="label">{_line(kind)}</p>{_render_code(text)}'
            case Call():
                yield from self._render_call(part)

    def _render_call(self, call: Call) -> Iterator[str]:
        gist = _gist(call.gist)
        state = ' <span class="failed">failed</span>' if call.result and call.result.is_error else ""
        if call.result is None:
            state = ' <span class="note">no result</span>'
        yield f'<details class="call">\n<summary><b>{_line(call.name)}</b>'
        yield f"{f'<code>{gist}</code>' if gist else ''}{state}</summary>\n"
        yield '<div class="body">\n'
        for name, text in call.list_inputs():
            if name and len(text) <= 80 and "\n" not in text:  # noqa: PLR2004 - fits on a line
                yield f'<p class="label">{_line(name)}: <code>{_line(text)}</code></p>\n'
            else:
                yield f'<p class="label">{_line(name)}</p>\n{_render_code(text)}'
        for subagent in call.subagents:
            yield from self._render_subagent(subagent)
        if call.result is not None:
            yield from self._render_result(call.result)
        yield "</div>\n</details>\n"

    def _render_result(self, result: Result) -> Iterator[str]:
        label = '<span class="failed">Failed</span>' if result.is_error else "Returned"
        yield f'<p class="label">{label}{"" if result.parts else " nothing"}</p>\n'
        for part in result.parts:
            if isinstance(part, Text):
                yield _render_code(part.text)
            else:
                yield from self._render_part(part)

    def _render_subagent(self, subagent: Subagent) -> Iterator[str]:
        name = _line(" ".join(filter(None, ("Subagent", subagent.agent_type))))
        yield f'<details class="agent">\n<summary><b>{name}</b> {_gist(subagent.description)}</summary>\n'
        yield '<div class="body">\n'
        yield from self._render_messages(subagent.messages)
        yield "</div>\n</details>\n"

    def _render_picture(self, picture: Picture) -> str:
        if picture.address:
            return f'<p class="note">Picture at {_line(picture.address)} (not loaded)</p>\n'
        data = _decode_picture(picture.data)
        media_type = _recognise(data)
        if media_type is None:
            given = _line(picture.media_type) or "no type"
            return f'<p class="note">Picture left out: declared as {given}, cannot be shown safely</p>\n'
        if self._picture_bytes + len(data) > _LARGEST_PICTURES:
            return f'<p class="note">Picture left out: {len(data):,} bytes, the limit of the page is reached</p>\n'
        self._picture_bytes += len(data)
        encoded = base64.b64encode(data).decode()
        alt = f"Picture, {media_type.removeprefix('image/').upper()}, {len(data):,} bytes"
        return f'<img alt="{alt}" decoding="async" src="data:{media_type};base64,{encoded}">\n'


def _decode_picture(data: str) -> bytes:
    """Decode a picture; empty if it is too large or broken."""
    if len(data) > _LARGEST_PICTURE * 4 // 3 + 4:
        return b""
    try:
        return base64.b64decode(data.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""


def _recognise(data: bytes) -> str | None:
    """Return the type of a picture by its first bytes. None for types that may be active content in a browser."""
    for signature, media_type in _SIGNATURES.items():
        if data.startswith(signature):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _render_plain(text: str) -> str:
    shown, more = cut(text)
    return f'<div class="plain">{escape(shown)}</div>\n{_note(more)}'


def _render_code(text: str) -> str:
    shown, more = cut(text)
    return f'<pre tabindex="0">{escape(shown.strip(chr(10)))}</pre>\n{_note(more)}'


def _render_answer(text: str) -> str:
    """Render Markdown. A very long text is shown as plain text, since parsing it would take long."""
    if len(text) > _LONGEST_MARKDOWN:
        return _render_plain(text)
    parser = _make_parser()
    shown = reveal(text)
    tokens = parser.parse(shown)
    if _count_letters(f"{each.content}{each.info}" for each in tokens) < _count_letters([shown]):
        # Markdown would hide something: nested too deeply, or more cells than columns
        return _render_plain(text)
    for token in tokens:
        token.attrs.pop("style", None)
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
        elif token.type in {"fence", "code_block"}:
            label = f'<p class="label">{_line(token.info)}</p>\n' if token.info.strip() else ""
            token.type, token.content = "html_block", label + _render_code(token.content)
    return f'<div class="said">{parser.renderer.render(tokens, parser.options, {})}</div>\n'


def _count_letters(texts: Iterable[str]) -> int:
    return sum(sum(map(str.isalnum, text)) for text in texts)


@cache
def _make_parser() -> Any:
    """Return a Markdown parser without everything that leads out of the page, or hides something."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - heavy

    parser = MarkdownIt(
        "commonmark", {"html": False, "linkify": False, "typographer": False, "xhtmlOut": False}
    )
    return parser.enable(["table", "strikethrough"]).disable(
        ["link", "image", "autolink", "reference", "entity", "html_block", "html_inline"]
    )


@cache
def _read_style() -> str:
    return resources.files("toolwire.sessions").joinpath("export.css").read_text(encoding="utf-8")


def _note(more: str) -> str:
    return f'<p class="note">{more}</p>\n' if more else ""


def _line(text: str) -> str:
    """Make a text safe for HTML, on one line."""
    return escape(reveal(" ".join(text[:2000].split())))


def _gist(text: str) -> str:
    """Return the beginning of a text, safe for HTML."""
    return escape(reveal(entries.shorten(" ".join(text[:2000].split()), _LONGEST_GIST)))
