"""`Profile`: everything that is specific to one catalogue's API, as data.

Owns finding, reading and changing profiles (TOML, or YAML if PyYAML is installed), the error messages for an
invalid one, and the documentation of the settings (JSON schema, reference). The tables are in `tables`. Reads
only the file that it is given, and knows nothing about HTTP.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from toolwire._support.words import closest
from toolwire.catalog.profile import tables
from toolwire.catalog.profile.extract import read_item
from toolwire.catalog.profile.rules import ProfileError, show_value
from toolwire.catalog.profile.tables import Price, Secret, Settings, Table
from toolwire.catalog.tools.definitions import Entry

__all__ = ["BUILTIN", "Price", "Profile", "ProfileError", "Secret", "json_schema", "reference"]

_SHOWN: Final = 80
_MOST_VALUES: Final = 20_000
_DEEPEST: Final = 50
_LARGEST: Final = 256 * 1024
_REFERENCE: Final[tuple[tuple[str, type[Table]], ...]] = (
    ("", Settings),
    ("[secrets.NAME]", Secret),
    ("[secrets.NAME] parts", tables.SecretPart),
    ("[request]", tables.Shared),
    ("[list]", tables.ListRequest),
    ("[list.paging]", tables.Paging),
    ("[entry]", tables.EntryPaths),
    ("[entry.price]", Price),
    ("[call]", tables.Call),
    ("[reply]", tables.Reply),
    ("[reply] failure", tables.Condition),
    ("[balance]", tables.Balance),
    ("[network]", tables.NetworkSettings),
    ("[environment]", tables.Environment),
)
"""The tables of the reference, by title."""


class Profile(Settings):
    """Everything about one API.

    Paths into replies and items are dotted (`function.name`); empty means none, `a|b.c` the first that exists.
    """

    def __init__(self, **settings: Any) -> None:
        """Create a profile from its tables, as models or plain data. Raises ProfileError if it is invalid."""
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ProfileError(_first_error(error)) from None

    @classmethod
    def load(cls, path: str | Path) -> "Profile":
        """Read the profile in a `.toml`, `.yaml` or `.yml` file."""
        path = Path(path)
        return cls.from_dict(read(path), where=str(path))

    @classmethod
    def find(cls, text: str) -> "Profile":
        """Find a built-in profile by its name, or read one by the path of its file."""
        if text in BUILTIN:
            return BUILTIN[text]
        if Path(text).suffix or Path(text).exists():
            return cls.load(text)
        raise ProfileError(
            f"there is no profile {text!r}: the built-in ones are {', '.join(BUILTIN)}; for your own, give the "
            "path of its .toml or .yaml file"
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "profile") -> "Profile":
        """Create a profile from the tables of a file. Error messages begin with `where`."""
        if not isinstance(data, Mapping):
            raise ProfileError(f"{where}: a profile must be a table of settings, got {type(data).__name__}")
        try:
            _check_shape(data)
            return cls(**{key: value for key, value in data.items() if key != "$schema"})
        except ProfileError as error:
            raise ProfileError(f"{where}: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that were set, as plain JSON types; the inverse of `from_dict`."""
        plain: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return plain

    def changed(self, **changes: Any) -> "Profile":
        """Return a copy with changed settings; tables are merged: `profile.changed(call={"timeout": 5})`."""
        return Profile.from_dict(_merge(self.as_dict(), changes), where=self.name)

    def resolved(self, environ: Mapping[str, str]) -> "Profile":
        """Return the profile with the base URL from the environment, if that is set."""
        variable = self.environment.base_url
        if not variable or not (address := environ.get(variable, "").strip()):
            return self
        try:
            return Profile(**{**self.as_dict(), "base_url": address})
        except ProfileError as error:
            raise ProfileError(f"{variable}: {error}") from None

    def read_entry(self, item: Any) -> Entry | None:
        """Read an item of the list as an entry; None for one without an id, which could not be bought."""
        return read_item(self.entry, item).entry


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of profiles, which editors use to complete and check them."""
    schema = Profile.model_json_schema(by_alias=True)
    schema["title"] = "A toolwire profile"
    schema["properties"]["$schema"] = {"type": "string", "description": "Where this schema is, for editors."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def reference() -> str:
    """Return every setting of a profile as Markdown, one table for each table; `docs/profiles.md` contains it."""
    return "\n\n".join("\n".join(_reference_lines(title, model)) for title, model in _REFERENCE) + "\n"


def _reference_lines(title: str, model: type[Table]) -> Iterator[str]:
    yield f"### {f'`{title}`' if title else 'At the top'}"
    yield ""
    yield f"{(model.__doc__ or '').partition(chr(10))[0]}" if title else "Settings that every profile has."
    yield ""
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    # The table's own settings come before those that all requests have.
    shared = tables.Request.model_fields
    for name, field in sorted(model.model_fields.items(), key=lambda each: each[0] in shared):
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{field.alias or name}` | {_show_default(field.default)} | {meaning} |"


def _show_default(default: Any) -> str:
    if default is PydanticUndefined:
        return "must be set"
    if isinstance(default, Table):
        return "a table"
    if default is None or default in ("", (), {}, frozenset()):
        return ""
    shown = json.dumps(sorted(default) if isinstance(default, frozenset) else default)
    return f"`{shown.replace('|', chr(92) + '|')}`"


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(old)
    for key, value in new.items():
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", by_alias=True, exclude_unset=True)  # noqa: PLW2901
        before = made.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        made[key] = _merge(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return made


def _check_shape(data: Any) -> None:
    """Reject keys that are not text, and data that is too large or too deep.

    YAML allows both: a few aliases nested inside each other expand to millions of values.
    """
    todo: list[tuple[Any, str, int]] = [(data, "", 0)]
    count = 0
    while todo:
        value, where, depth = todo.pop()
        count += 1
        if count > _MOST_VALUES or depth > _DEEPEST:
            raise ProfileError(
                f"a profile may have at most {_MOST_VALUES:,} values, nested at most {_DEEPEST} deep: this one has "
                "more"
            )
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ProfileError(
                        f"{where or 'the profile'} must have names as keys, got {show_value(key)}"
                    )
                todo.append((inner, f"{where}.{key}" if where else key, depth + 1))
        elif isinstance(value, (list, tuple)):
            todo.extend((inner, where, depth + 1) for inner in value)


# Messages for the errors of pydantic.

_MESSAGES: Final = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    **dict.fromkeys(
        ("mapping_type", "dict_type", "model_type", "model_attributes_type"),
        "must be a table with names as keys",
    ),
    **dict.fromkeys(("tuple_type", "list_type", "frozen_set_type", "set_type"), "must be a list"),
    "string_too_short": "must not be empty",
    "string_too_long": "is too long for a path",
}
_COMPARED: Final = {
    "greater_than": ("over", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("under", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _first_error(error: ValidationError) -> str:
    """Describe what is wrong with a profile: all missing settings of one table, or the first other mistake."""
    errors = error.errors(include_url=False)
    unknown = next((each for each in errors if each["type"] == "extra_forbidden"), None)
    if unknown is not None:  # a misspelt name may also be reported as missing: the spelling helps more
        return _unknown_setting(unknown)
    first = errors[0]
    if first["type"] == "missing":
        table = first["loc"][:-1]
        names = [
            str(each["loc"][-1]) for each in errors if each["type"] == "missing" and each["loc"][:-1] == table
        ]
        where = f"{_join_path(table)}: " if table else ""
        return f"{where}{', '.join(names)} must be set"
    return _describe_error(first)


def _describe_error(error: ErrorDetails) -> str:
    where = _join_path(tuple(each for each in error["loc"] if each != "[key]"))
    got = f", got {show_value(error['input'])}"
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        message = str(context["error"])
        if not where:
            return message
        return f"{where} {message}" if message.startswith("must") else f"{where}: {message}"
    if kind == "literal_error":
        return f"{where} must be one of {str(context['expected']).replace(' or ', ', ').replace(chr(39), '')}{got}"
    if kind in _COMPARED:
        word, name = _COMPARED[kind]
        return f"{where} must be {word} {context[name]}{got}"
    return f"{where} {_MESSAGES.get(kind) or error['msg']}{got}"


def _unknown_setting(error: ErrorDetails) -> str:
    *table, name = error["loc"]
    known = list(_names_at(tuple(table)))
    near = closest(str(name), known)
    hint = f"did you mean {near!r}?" if near else f"the settings are {', '.join(known)}"
    where = f"{_join_path(tuple(table))}: " if table else ""
    return f"{where}there is no setting {str(name)[:_SHOWN]!r}: {hint}"


def _names_at(table: tuple[int | str, ...]) -> Iterator[str]:
    """Yield the settings that a table has."""
    model: Any = Profile
    for step in table:
        field = next(
            (each for name, each in model.model_fields.items() if (each.alias or name) == step), None
        )
        inner = _model_in(field.annotation) if field is not None else None
        model = inner or model  # an index or the name of a secret is no field: the table was found before
    for name, field in model.model_fields.items():
        yield field.alias or name


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)


def _join_path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in location).lstrip(".")


@cache
def _built_in(name: str) -> Profile:
    text = (files("toolwire.catalog.profile") / "builtin" / f"{name}.toml").read_text("utf-8")
    return Profile.from_dict(tomllib.loads(text), where=name)


class _BuiltIn(Mapping[str, Profile]):
    """The profiles that come with toolwire, read when they are first used."""

    _NAMES: Final = ("agentpmt", "agentpmt-keys")

    def __getitem__(self, name: str) -> Profile:
        if name not in self._NAMES:
            raise KeyError(name)
        return _built_in(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._NAMES)

    def __len__(self) -> int:
        return len(self._NAMES)


BUILTIN: Final[Mapping[str, Profile]] = _BuiltIn()


def read(path: Path) -> Any:
    """Read and parse a file. Raises ProfileError that names the file and says what is wrong."""
    kind = path.suffix.lower()
    if kind not in (".toml", ".yaml", ".yml"):
        raise ProfileError(f"{path}: a profile must be a .toml, .yaml or .yml file")
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ProfileError(f"{path}: the profile cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise ProfileError(f"{path}: a profile may have at most {_LARGEST // 1024} KiB")
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text) if kind == ".toml" else _yaml(text)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: not valid {kind[1:].upper()}: {error}") from error


def _yaml(text: str) -> Any:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise ProfileError(
            "PyYAML is needed to read YAML: pip install pyyaml, or write the profile as TOML"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # imported at run time
        """Rejects duplicate keys: one of the two would be lost."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for name in (key.value for key, _ in node.value if isinstance(key.value, str)):
                if name in seen:
                    line = node.start_mark.line + 1
                    raise ProfileError(f"{name[:80]!r} is set twice in the table at line {line}")
                seen.add(name)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ProfileError(f"not valid YAML: {error}") from error
