"""Draws a `Form`: an input for each field, with the field's errors next to it.

Keeps no values: every change goes to the form at once. A container (object, list, map, variant) is redrawn when its
structure changes; the rest of the form, with the text typed there, stays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from nicegui import events, ui
from nicegui.element import Element
from nicegui.elements.mixins.validation_element import ValidationElement

from toolwire._support.words import plain_line
from toolwire.studio.forms import MISSING, Field, Form, Path
from toolwire.studio.pages.parts import small_button

_DEPTH_OPEN: Final = 3  # levels of nested objects that are unfolded from the start
_NOT_GIVEN: Final = "(not given)"
_LARGEST_FILE: Final = 10_000_000  # bytes; the file is sent to the tool as JSON


class FormView:
    """The inputs of a form."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._errors: dict[Path, list[str]] = {}
        self._show_error: dict[Path, Callable[[list[str]], None]] = {}
        with ui.element("div").classes("tw-form") as self._root:
            self._draw_all()

    def redraw(self) -> None:
        """Redraw everything, for example after the arguments were replaced."""
        self._root.clear()
        self._show_error.clear()
        with self._root:
            self._draw_all()

    def check(self) -> bool:
        """Validate the form and show each error at its field. Returns True if there are no errors."""
        self.show_errors(self._form.check())
        return not self._errors

    def show_errors(self, errors: dict[Path, list[str]]) -> None:
        """Replace the shown errors. An error without an input of its own is shown at the field above it."""
        self._errors = errors
        for show in self._show_error.values():
            show([])
        found: dict[Path, list[str]] = {}
        for path, messages in errors.items():
            at = path
            while at not in self._show_error and at:
                at = at[:-1]
            more = "" if at == path else f"{'.'.join(map(str, path[len(at) :]))}: "
            found.setdefault(at, []).extend(f"{more}{each}" for each in messages)
        for path, messages in found.items():
            if path in self._show_error:
                self._show_error[path](messages)

    def _draw_all(self) -> None:
        root = self._form.root
        self._add_error_label(())
        if root.kind in {"object", "map"}:
            fields = self._form.fields(())
            for each in fields:
                self._draw(each, 1)
            if not fields and not root.is_open:
                ui.label("No arguments.").classes("tw-dim")
            if root.is_open:
                self._draw_add_entry((), self.redraw)
        else:
            self._draw(root, 1)

    # --- one field ---

    def _draw(self, field: Field, depth: int) -> None:
        box = ui.element("div").classes("tw-field")
        with box:
            self._draw_into(box, field, depth)

    def _draw_into(self, box: Element, field: Field, depth: int) -> None:
        def redraw() -> None:
            box.clear()
            for path in [each for each in self._show_error if each[: len(field.path)] == field.path and each]:
                del self._show_error[path]
            with box:
                self._draw_into(box, self._form.field(field.path), depth)

        if field.kind in {"object", "list", "map", "variant"}:
            self._draw_container(field, depth, redraw)
        else:
            self._draw_value(field, redraw)

    def _draw_value(self, field: Field, redraw: Callable[[], None]) -> None:
        path, form = field.path, self._form
        hint = describe(field)
        shape = form.shape(path) or field
        with ui.row().classes("tw-line"):
            drawers: dict[str, Callable[[Field, str], None]] = {
                "boolean": self._draw_boolean,
                "choice": self._draw_choice,
                "choices": self._draw_choices,
                "file": self._draw_file,
            }
            drawers.get(shape.kind, self._draw_text)(shape, hint)
            self._draw_actions(field, redraw)

    def _draw_text(self, field: Field, hint: str) -> None:
        path, form = field.path, self._form
        types = {"date": "date", "date-time": "text"}
        many = field.kind in {"long_text", "json"}
        make: Any = ui.textarea if many else ui.input
        entry: Any = make(
            label_of(field), value=form.text(path), on_change=lambda e: self._typed(path, e.value)
        )
        entry.props("outlined dense" + (" autogrow" if many else "")).classes("tw-input")
        if field.kind in types:
            entry.props["type"] = types[field.kind]
            entry.props["stack-label"] = True
        if field.kind in {"integer", "number"}:
            entry.props["inputmode"] = "decimal"
        if field.kind == "json":
            entry.classes("tw-mono-input")
        entry.props["hint"] = hint
        entry.props["aria-required"] = "true" if field.required else "false"
        self._show_errors_in(entry, path)

    def _draw_boolean(self, field: Field, hint: str) -> None:
        value = self._form.value(field.path)
        chosen = "" if not isinstance(value, bool) else str(value).lower()
        self._draw_single(field, hint, {"true": "Yes", "false": "No"}, chosen, lambda key: key == "true")

    def _draw_choice(self, field: Field, hint: str) -> None:
        chosen = next(map(str, self._form.picked(field.path)), "")
        self._draw_single(field, hint, _number(field), chosen, lambda key: field.choices[int(key)])

    def _draw_single(
        self, field: Field, hint: str, values: dict[str, str], chosen: str, read: Callable[[str], Any]
    ) -> None:
        def change(key: str | None) -> None:
            if key:
                self._form.set_value(field.path, read(key))
            else:
                self._form.clear(field.path)

        select = _add_select(label_of(field), {"": _NOT_GIVEN, **values}, chosen, change)
        select.props["hint"] = hint
        self._show_errors_in(select, field.path)

    def _draw_choices(self, field: Field, hint: str) -> None:
        def change(keys: list[str] | None) -> None:
            self._form.set_value(field.path, [field.choices[int(key)] for key in keys or ()])

        chosen = [str(at) for at in self._form.picked(field.path)]
        select = _add_select(label_of(field), _number(field), chosen, change)
        select.props["hint"] = hint
        self._show_errors_in(select, field.path)

    def _draw_file(self, field: Field, hint: str) -> None:
        path, form = field.path, self._form

        async def take(event: events.UploadEventArguments) -> None:
            content = await event.file.read()
            form.set_file(path, content)
            status.set_text(f"{plain_line(event.file.name)}, {len(content):,} bytes")

        with ui.element("div").classes("tw-input"):
            upload = ui.upload(
                label=label_of(field),
                on_upload=take,
                auto_upload=True,
                max_files=1,
                max_file_size=_LARGEST_FILE,
            )
            upload.props("flat bordered").classes("tw-upload")
            given = form.value(path)
            status = ui.label("" if given is MISSING else f"{len(str(given)):,} characters of base64")
            status.classes("tw-dim").props("role=status")
            if hint:
                ui.label(hint).classes("tw-dim")
            self._add_error_label(path)

    def _typed(self, path: Path, text: str | None) -> None:
        if not text and not self._form.field(path).required:
            self._form.clear(path)  # an empty optional field counts as not given; a button sets the value ""
        else:
            self._form.set_text(path, text or "")

    def _draw_actions(self, field: Field, redraw: Callable[[], None]) -> None:
        """Add buttons for values that cannot be typed: null, an empty text, and an example."""
        path, form = field.path, self._form

        def put(value: Any) -> None:
            form.set_value(path, value)
            redraw()

        forget = _then(redraw, lambda: form.clear(path))
        value = form.value(path)
        if value is None and field.nullable:
            ui.label("null").classes("tw-chip")
            small_button("Not null", forget, f"Remove null from {label_of(field)}")
        elif field.nullable:
            small_button("null", lambda: put(None), f"Set {label_of(field)} to null")
        if field.kind in {"text", "long_text"} and not field.required:
            if value == "":
                ui.label('""').classes("tw-chip")
                small_button("Not given", forget, f"Remove the empty text from {label_of(field)}")
            else:
                small_button("empty", lambda: put(""), f"Set {label_of(field)} to the empty text")
        if field.examples:
            small_button(
                "Example", lambda: put(field.examples[0]), f"Fill in an example for {label_of(field)}"
            )

    # --- containers ---

    def _draw_container(self, field: Field, depth: int, redraw: Callable[[], None]) -> None:
        path, form = field.path, self._form
        title = label_of(field)
        with ui.element("fieldset").classes("tw-fieldset"):
            with ui.element("legend").classes("tw-legend").props("aria-hidden=false"):
                ui.label(title)
            if hint := describe(field):
                ui.label(hint).classes("tw-dim")
            self._add_error_label(path)
            if not form.is_given(path) and field.kind != "variant":
                self._draw_absent(field, depth, redraw)
                return
            if form.value(path) is None:
                self._draw_actions(field, redraw)
                return
            if field.kind == "variant":
                self._draw_variant(field, depth, redraw)
            else:
                self._draw_inside(field, depth, redraw)
            if not field.required and path and form.is_given(path) and not isinstance(path[-1], int):
                small_button("Leave out", _then(redraw, lambda: form.clear(path)), f"Leave out {title}")
            if field.nullable:
                small_button(
                    "null", _then(redraw, lambda: form.set_value(path, None)), f"Set {title} to null"
                )

    def _draw_absent(self, field: Field, depth: int, redraw: Callable[[], None]) -> None:
        path, form = field.path, self._form
        if field.required and depth <= _DEPTH_OPEN and field.kind == "object":
            form.give(path)
            redraw()
            return
        word = {"object": "Fill in", "list": "Add items", "map": "Add entries"}[field.kind]
        small_button(word, _then(redraw, lambda: form.give(path)), f"{word}: {label_of(field)}")

    def _draw_variant(self, field: Field, depth: int, redraw: Callable[[], None]) -> None:
        path, form = field.path, self._form
        chosen = form.chosen(path)

        def change(key: str | None) -> None:
            if key:
                form.choose(path, int(key))
            else:
                form.clear(path)
            redraw()

        values = {"": _NOT_GIVEN, **_number(field)}
        _add_select(f"Kind of {label_of(field)}", values, "" if chosen is None else str(chosen), change)
        shape = form.shape(path)
        if shape is None or form.value(path) is None:
            return
        if shape.kind in {"object", "list", "map"}:
            self._draw_inside(shape, depth, redraw)
        elif chosen is not None or shape.kind == "json":
            self._draw_value(field, redraw)

    def _draw_inside(self, field: Field, depth: int, redraw: Callable[[], None]) -> None:
        path, form = field.path, self._form
        inner = form.fields(path)
        for number, each in enumerate(inner):
            with ui.row().classes("tw-item"):
                self._draw(each, depth + 1)
                if field.kind == "list" and not field.is_fixed:
                    self._draw_item_actions(each, number, len(inner), redraw)
                elif field.kind == "map":
                    small_button(
                        "Remove", _then(redraw, partial(form.remove, each.path)), f"Remove {label_of(each)}"
                    )
        if field.kind == "list" and not field.is_fixed:
            small_button(
                "Add an item", _then(redraw, lambda: form.add_item(path)), f"Add an item to {label_of(field)}"
            )
        if field.is_open:
            self._draw_add_entry(path, redraw)

    def _draw_item_actions(self, field: Field, number: int, count: int, redraw: Callable[[], None]) -> None:
        path, form = field.path, self._form
        if number > 0:
            small_button(
                "Up", _then(redraw, lambda: form.move_item(path, number - 1)), f"Move {label_of(field)} up"
            )
        if number < count - 1:
            small_button(
                "Down",
                _then(redraw, lambda: form.move_item(path, number + 1)),
                f"Move {label_of(field)} down",
            )
        small_button("Remove", _then(redraw, lambda: form.remove(path)), f"Remove {label_of(field)}")

    def _draw_add_entry(self, path: Path, redraw: Callable[[], None]) -> None:
        with ui.row().classes("tw-line"):
            name = ui.input("Name of the new entry").props("outlined dense").classes("tw-input")

            def add() -> None:
                try:
                    self._form.add_entry(path, name.value or "")
                except ValueError as error:
                    name.error = str(error)
                else:
                    redraw()

            small_button("Add the entry", add, "Add the entry")

    def _show_errors_in(self, entry: ValidationElement[Any], path: Path) -> None:
        """Make an input show the errors of its field."""
        self._show_error[path] = lambda messages: setattr(entry, "error", "; ".join(messages) or None)

    def _add_error_label(self, path: Path) -> None:
        label = ui.label("").classes("tw-bad").props("role=alert")
        label.set_visibility(False)

        def show(messages: list[str]) -> None:
            label.set_text("; ".join(messages))
            label.set_visibility(bool(messages))

        self._show_error[path] = show


def label_of(field: Field) -> str:
    """Return the label of a field: its title, with a star if it is required."""
    return f"{field.title or 'Value'}{' *' if field.required else ''}"


def describe(field: Field) -> str:
    """Return the description, limits and default of a field, on one line."""
    parts = [plain_line(field.description).rstrip("."), *field.limits]
    if field.default is not MISSING and field.default is not None:
        parts.append(f"default: {plain_line(str(field.default))[:80]}")
    return "; ".join(each for each in parts if each)


def _number(field: Field) -> dict[str, str]:
    """Return the labels of choices or variants, by number."""
    return {str(number): label for number, label in enumerate(field.labels)}


def _add_select(
    label: str, values: dict[str, str], chosen: str | list[str], change: Callable[[Any], None]
) -> ui.select:
    """Add a select, for several values if `chosen` is a list. `change` is called with the selected ones."""
    many = isinstance(chosen, list)
    select = ui.select(
        values, value=chosen, label=label, multiple=many, on_change=lambda event: change(event.value)
    )
    return select.props("outlined dense options-dense" + (" use-chips" if many else "")).classes("tw-input")


def _then(redraw: Callable[[], None], work: Callable[[], object]) -> Callable[[], None]:
    """Return a function that changes the form and then redraws the changed part."""

    def act() -> None:
        work()
        redraw()

    return act
