"""Makes the top of a tool's schema one object with properties.

The CLI drops all tools of a server for one whose schema is no object, and the model's API refuses the whole request
for an `anyOf`, `oneOf`, `allOf` or an oddly named property at the top. So what those say is folded into one object.
"""

import re
from typing import Any, Final

from toolwire._support.schema_structure import resolve
from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.keywords import Note, required_of_unknown
from toolwire.tools.schema.arguments import clip

_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)
_LONGEST_CHAIN: Final = 10
_FOLDED: Final = ("$ref", "allOf", "anyOf", "oneOf")


def to_object(schema: Any, note: Note) -> dict[str, Any]:
    """Turn a mended schema into one object. May change its argument; raises `Unrepairable` if that fails."""
    if not isinstance(schema, dict):
        raise Unrepairable("the schema takes nothing at all")
    root = schema
    top = dict(schema)
    for keyword in _FOLDED:
        if keyword in top:
            branches = top.pop(keyword)
            _fold(top, branches if isinstance(branches, list) else [{keyword: branches}], keyword, root, note)
    top.pop("$id", None)
    if isinstance(top.get("id"), str):
        del top["id"]
    kind = top.get("type", "object")
    if kind != "object":
        if not (isinstance(kind, list) and "object" in kind):
            raise Unrepairable(f"the schema is of type {kind}, and arguments are an object")
        note("", "the type is now object alone")
    top["type"] = "object"
    top.setdefault("properties", {})
    for keyword in ("default", "enum", "const"):
        if keyword in top:
            del top[keyword]
            note("", f"`{keyword}` of the whole was dropped")
    required_of_unknown(top, "", note)
    _drop_illegal_names(top, note)
    return {"type": top.pop("type"), **top}


def _fold(top: dict[str, Any], branches: list[Any], keyword: str, root: dict[str, Any], note: Note) -> None:
    """Fold the properties of branches into the object itself."""
    every = keyword in ("$ref", "allOf")
    found = [_dereference(each, root) for each in branches]
    objects = [each for each in found if each is not None and _is_object(each)]
    if not objects or (every and len(objects) < len(found)):
        raise Unrepairable(f"the schema's `{keyword}` at the top does not say what object it takes")
    table: dict[str, Any] = dict(top.get("properties") or {})
    for branch in objects:
        for name, each in branch.get("properties", {}).items():
            if name not in table:
                table[name] = each
            elif table[name] != each:
                table[name] = _combine(table[name], each, "allOf" if every else "anyOf")
        if every or len(objects) == 1:
            for extra, value in branch.items():
                if extra not in ("properties", "required", "type", *_FOLDED):
                    top.setdefault(extra, value)
    lists = [branch.get("required", []) for branch in objects]
    needed = [
        name
        for name in dict.fromkeys(name for each in lists for name in each if isinstance(name, str))
        if every or all(name in each for each in lists)
    ]
    top["properties"] = table
    if wanted := list(dict.fromkeys([*top.get("required", []), *needed])):
        top["required"] = wanted
    note("", f"`{keyword}` at the top was folded into one object")


def _combine(one: Any, other: Any, keyword: str) -> dict[str, Any]:
    """Combine two schemas of one property."""
    if isinstance(one, dict) and one.keys() == {keyword}:
        return one if other in one[keyword] else {keyword: [*one[keyword], other]}
    return {keyword: [one, other]}


def _dereference(branch: Any, root: dict[str, Any]) -> dict[str, Any] | None:
    """Return a branch, or the target of its reference; None if there is nothing to fold."""
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(branch, dict):
            return None
        if not isinstance(branch.get("$ref"), str):
            return branch
        branch = resolve(branch["$ref"], root)
    return None


def _is_object(branch: dict[str, Any]) -> bool:
    # A reference may lead to a place that is no schema and was not mended.
    sound = isinstance(branch.get("properties", {}), dict) and isinstance(branch.get("required", []), list)
    return (
        sound and branch.get("type", "object") == "object" and not {"allOf", "anyOf", "oneOf"} & branch.keys()
    )


def _drop_illegal_names(top: dict[str, Any], note: Note) -> None:
    """Drop properties with names that the model's API rejects. `Unrepairable` if one of them is required."""
    for name in [name for name in top["properties"] if not _KEY.fullmatch(name)]:
        if name in top.get("required", []):
            raise Unrepairable(f"the required property {clip(name)!r} has a name that no model may use")
        del top["properties"][name]
        note(name, "the property was dropped, for no model may use its name")
