"""Writes the settings of profiles as Markdown tables, from the models: the reference in `docs/profiles.md`."""

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import PydanticUndefined

from toolwire.catalog.profile.tables import Condition, SecretPart, Settings, Table

_TABLES: Final = (
    ("", Settings),
    ("[secrets.NAME]", "secrets"),
    ("[secrets.NAME] parts", SecretPart),
    ("[request]", "request"),
    ("[list]", "list"),
    ("[list.paging]", "list.paging"),
    ("[entry]", "entry"),
    ("[entry.price]", "entry.price"),
    ("[call]", "call"),
    ("[reply]", "reply"),
    ("[reply] failure", Condition),
    ("[balance]", "balance"),
    ("[network]", "network"),
    ("[environment]", "environment"),
)


def reference() -> str:
    """Return every setting of a profile as Markdown, a table for each table."""
    return "\n\n".join("\n".join(_lines(title, _model(where))) for title, where in _TABLES) + "\n"


def _lines(title: str, model: type[Table]) -> Iterator[str]:
    yield f"### {f'`{title}`' if title else 'At the top'}"
    yield ""
    yield f"{(model.__doc__ or '').partition(chr(10))[0]}" if title else "Settings that every profile has."
    yield ""
    yield "| setting | default | what it says |"
    yield "|---|---|---|"
    # The table's own settings come before those that all requests have.
    for name, field in sorted(
        model.model_fields.items(), key=lambda each: each[0] not in model.__annotations__
    ):
        words = (field.description or "").replace("|", "\\|")
        yield f"| `{field.alias or name}` | {_default(field)} | {words} |"


def _default(field: Any) -> str:
    default = field.default
    if default is PydanticUndefined:
        return "must be set"
    if isinstance(default, Table):
        return "a table"
    if default is None or default in ("", (), {}):
        return ""
    if isinstance(default, frozenset):
        default = sorted(default)
    return f"`{json.dumps(default).replace('|', chr(92) + '|')}`" if default != [] else ""


def _model(where: Any) -> type[Table]:
    if not isinstance(where, str):
        return where  # type: ignore[no-any-return]  # a class of this table
    model: type[Table] = Settings
    for step in where.split("."):
        model = _table_in(model.model_fields[step].annotation)
    return model


def _table_in(annotation: Any) -> type[Table]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next(_table_in(each) for each in annotation.__args__ if each is not str and each is not type(None))
