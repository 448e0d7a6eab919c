"""The building blocks of the page: buttons, headings, text, JSON, and the content of results.

The values may come from a tool, a model or a server. They are only ever shown as text, or as a picture or sound of
a known type. Nothing becomes markup, and no URL is opened or loaded automatically.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from nicegui import ui
from nicegui.element import Element

from toolwire._support.words import plain, plain_line

LONGEST_TEXT: Final = 10_000
"""The number of characters of a text that are shown; the whole text can be downloaded."""
_LARGEST_MEDIA: Final = 20_000_000  # bytes of a picture or a sound
_MOST_BLOCKS: Final = 50
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SOUNDS: Final = frozenset(
    {"audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/webm", "audio/mp4"}
)


def small_button(text: str, on_click: Callable[..., Any], label: str = "") -> ui.button:
    """Add a small button without a background. A screen reader reads `label` instead of the text."""
    button = ui.button(text, on_click=on_click).props("flat dense no-caps").classes("tw-small")
    if label:
        button.props["aria-label"] = label
    return button


def action_button(text: str, on_click: Callable[..., Any], kind: str = "do", icon: str = "") -> ui.button:
    """Add a prominent button. `kind` selects its colour: "do", "go" or "stop"."""
    # No Quasar colour: its rules would override those of the style sheet.
    button = ui.button(text, on_click=on_click, color=None, icon=icon or None)
    return button.props("no-caps dense unelevated padding='4px 12px'").classes(f"tw-{kind}")


def show_heading(text: str) -> None:
    """Add the heading of a section."""
    with ui.element("h2").classes("tw-title"):
        ui.label(plain_line(text))


def show_text(text: str, *, mono: bool = False, name: str = "text.txt") -> Element:
    """Show a text as it is. A long text is truncated, with a button to download all of it."""
    shown = plain(text[:LONGEST_TEXT])
    label = ui.label(shown).classes("tw-mono" if mono else "tw-text")
    if len(text) > LONGEST_TEXT:
        with ui.row().classes("items-center"):
            ui.label(f"Truncated: the first {LONGEST_TEXT:,} of {len(text):,} characters.").classes("tw-dim")
            small_button("Download all", lambda: ui.download.content(text, name))
    return label


def show_json(value: Any) -> Element:
    """Show a value as indented JSON."""
    return show_text(to_text(value), mono=True, name="value.json")


def to_text(value: Any) -> str:
    """Return a value as indented JSON, with the repr of anything that JSON does not support."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    except RecursionError:
        return "(Cannot be shown: nested too deeply.)"


@contextmanager
def folded(title: str, *, is_open: bool = False) -> Iterator[None]:
    """Draw a section that can be folded and unfolded."""
    with ui.expansion(title, value=is_open).props("dense dense-toggle").classes("tw-folded"):
        yield


def show_content(content: str | list[dict[str, Any]], structured: Any = None) -> None:
    """Show a result: a text, or content blocks of MCP or of the model's API."""
    raw: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    blocks = [each if isinstance(each, dict) else {"type": "text", "text": to_text(each)} for each in raw]
    texts = [each.get("text") for each in blocks if each.get("type") == "text"]
    has_text = any(isinstance(each, str) and each.strip() for each in texts)  # it repeats `structured`
    if structured is not None and not has_text:
        show_json(structured)
    for block in blocks[:_MOST_BLOCKS]:
        _show_block(block)
    if len(blocks) > _MOST_BLOCKS:
        ui.label(f"{len(blocks) - _MOST_BLOCKS:,} more blocks are not shown.").classes("tw-dim")
        small_button("Download all", lambda: ui.download.content(to_text(blocks), "result.json"))
    if structured is not None and has_text:
        with folded("Structured content"):
            show_json(structured)


def _show_block(block: dict[str, Any]) -> None:
    kind = block.get("type")
    source, resource = as_dict(block.get("source")), as_dict(block.get("resource"))
    if kind == "text":
        show_text(_indent(str(block.get("text", ""))), mono=True)
    elif kind in {"image", "audio"}:
        mime = block.get("mimeType") or source.get("media_type")
        _show_media(str(mime), block.get("data") or source.get("data"))
    elif "text" in resource:
        ui.label(plain(str(resource.get("uri", "")))).classes("tw-dim")
        show_text(str(resource["text"]), mono=True)
    elif "blob" in resource:
        _show_media(str(resource.get("mimeType")), resource["blob"])
    elif kind == "resource_link":
        ui.label(plain(f"{block.get('name') or 'Resource'}: {block.get('uri')}")).classes("tw-mono")
    else:
        show_json(block)


def as_dict(value: object) -> dict[str, Any]:
    """Return the value if it is a dict, otherwise an empty dict."""
    return value if isinstance(value, dict) else {}


def _indent(text: str) -> str:
    """Indent a text that is a JSON object or array. Any other text is returned unchanged."""
    if not text.startswith(("{", "[")) or len(text) > LONGEST_TEXT:
        return text
    try:
        return to_text(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _show_media(mime: str, data: Any) -> None:
    mime = mime.partition(";")[0].strip().lower()
    try:
        raw = base64.b64decode(data or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        ui.label(plain(f"{mime}: the data is not valid base64, so no client can display it.")).classes(
            "tw-bad"
        )
        return
    if len(raw) <= _LARGEST_MEDIA and mime in _PICTURES:
        # An <img> never runs code, whatever bytes it contains.
        picture = ui.element("img").classes("tw-picture")
        picture.props["src"] = f"data:{mime};base64,{data}"
        picture.props["alt"] = f"Picture from the tool, {mime}, {len(raw):,} bytes"
    elif len(raw) <= _LARGEST_MEDIA and mime in _SOUNDS:
        sound = ui.element("audio").props("controls")
        sound.props["src"] = f"data:{mime};base64,{data}"
        sound.props["aria-label"] = f"Sound from the tool, {mime}"
    else:
        with ui.row().classes("items-center"):
            ui.label(plain(f"{mime}, {len(raw):,} bytes"))
            small_button("Download", lambda: ui.download.content(raw, "file.bin"))
