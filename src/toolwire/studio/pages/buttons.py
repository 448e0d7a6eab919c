"""The buttons of the page, so that they look alike everywhere."""

from collections.abc import Callable
from typing import Any

from nicegui import ui


def small_button(text: str, on_click: Callable[..., Any], label: str = "") -> ui.button:
    """Add a small button without a background. `label` is what a screen reader says instead of the text."""
    button = ui.button(text, on_click=on_click).props("flat dense no-caps").classes("tw-small")
    if label:
        button.props["aria-label"] = label
    return button


def action_button(text: str, on_click: Callable[..., Any], kind: str = "do", icon: str = "") -> ui.button:
    """Add a button for what matters: "do" it, "go" ahead, or "stop"."""
    # Without a colour of Quasar's, whose rules would win over those of the style sheet.
    button = ui.button(text, on_click=on_click, color=None, icon=icon or None)
    return button.props("no-caps dense unelevated padding='4px 12px'").classes(f"tw-{kind}")
