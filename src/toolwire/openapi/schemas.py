"""Converts the schemas of a document to small schemas of JSON Schema draft 2020-12, each once.

Owns the differences between the schemas of OpenAPI and JSON Schema (`nullable`, `discriminator`, `readOnly`,
keywords next to a `$ref`), which parts a model does not need (examples, titles, vendor extensions), and which
definitions an operation needs. A `$ref` is kept: its target becomes a definition that is converted once and shared
by all tools that use it, so neither cycles nor shared schemas are ever expanded. Common mistakes are repaired as in
catalogues. One bad schema only affects the operations that use it.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

from toolwire._protocol.json_codec import dumps
from toolwire._support.schema_structure import LISTS, ONE, TABLES, iter_subschemas
from toolwire.catalog.hidden_text import find_hidden
from toolwire.catalog.schema_repair.bounds import MOST_DEPTH, Unrepairable, check_work
from toolwire.catalog.schema_repair.nodes import repair_nodes
from toolwire.catalog.schema_repair.repair import drop_invalid
from toolwire.catalog.values import tidy
from toolwire.errors import ToolDefinitionError
from toolwire.openapi.document import Document, Place, Unusable, as_list, as_object
from toolwire.tools.schema.json_schema import from_json_schema

Direction = Literal["request", "response"]

LONGEST_TEXT: Final = 300
"""The longest description inside a schema, in characters."""
_DROPPED: Final = frozenset(
    {
        *("example", "examples", "xml", "externalDocs", "title", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary"),
        *("$defs", "definitions", "collectionFormat", "discriminator", "contentSchema"),
    }
)
_CONTAINERS: Final = frozenset({*TABLES, *LISTS, *ONE}) - _DROPPED
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 80
_MOST_KINDS: Final = 20
_CUT: Final = "Shortened here; calls are validated against the complete schema."


@dataclass
class _Definition:
    """The converted target of references."""

    schema: Any = None
    uses: frozenset[str] = frozenset()
    problem: str | None = None
    listed: dict[bool, tuple[Any, int]] = field(default_factory=dict)
    """The schema and its size in bytes, without descriptions (True) and with them (False), once needed."""


@dataclass
class Schemas:
    """The schemas of a document, for requests or for responses."""

    document: Document
    direction: Direction = "request"
    _names: dict[Place, str] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _definitions: dict[str, _Definition] = field(default_factory=dict)
    _shared: dict[bytes, Any] = field(default_factory=dict)
    _converted: dict[tuple[str, bytes], Any] = field(default_factory=dict)
    _good: set[str] = field(default_factory=set)
    _bad: dict[frozenset[str], str] = field(default_factory=dict)

    def share(self, schema: Any) -> Any:
        """Return one object for all schemas that are equal, so that they are kept and compiled once."""
        return self._shared.setdefault(_encode(schema), schema)

    def convert(self, schema: Any, file: str = "") -> Any:
        """Convert a schema of this file. Raises `Unusable` with the reason."""
        key = (file, _encode(schema))
        if key not in self._converted:
            try:
                made = repair_nodes(self._convert(schema, file, 0), _ignore)
            except Unrepairable as reason:
                raise Unusable(str(reason)) from reason
            if (found := find_hidden(made)) is not None:
                raise Unusable(f"a schema has invisible characters, in {found[:60]!a}")
            self._converted[key] = made
        return self._converted[key]

    def definitions(self, names: Iterable[str]) -> dict[str, Any]:
        """Return these definitions and all that they refer to, nearest first. `Unusable` if one is bad."""
        return {name: self._get(name).schema for name in self._reach(names)}

    def needs_more_than(self, count: int, names: Iterable[str]) -> bool:
        """True if these definitions and all that they refer to are more than `count`."""
        return len(list(islice(self._reach(names), count + 1))) > count

    def check(self, names: frozenset[str]) -> None:
        """Build these definitions and all that they refer to. `Unusable` if one is bad."""
        if names in self._bad:
            raise Unusable(self._bad[names])
        try:
            self._good |= set(self._reach(names, self._good))
        except Unusable as reason:
            self._bad[names] = str(reason)
            raise

    def _reach(self, names: Iterable[str], known: AbstractSet[str] = frozenset()) -> Iterator[str]:
        """Yield these names and all that their definitions refer to, nearest first, without the known ones."""
        seen = set(known)
        queue = deque(sorted(names))
        while queue:
            name = queue.popleft()
            if name in seen:
                continue
            seen.add(name)
            definition = self._get(name)
            yield name
            queue.extend(sorted(definition.uses - seen))

    def _get(self, name: str) -> _Definition:
        definition = self._build(name)
        if definition.problem is not None:
            raise Unusable(definition.problem)
        return definition

    def fit(self, schema: dict[str, Any], uses: frozenset[str], most: int) -> tuple[dict[str, Any], str]:
        """Add to a schema as many of its definitions as fit into `most` bytes.

        Returns the schema, and a note on what was left out ("" if nothing was). If it is too large, descriptions
        inside the definitions are removed first; then the farthest definitions are replaced by ones that accept any
        value. Calls are validated against the complete schema. Definitions beyond the limit are not visited.
        """
        if not uses:
            return schema, ""
        room = most - len(dumps(schema)) - len('"$defs":{},')
        whole, complete = self._nearest(uses, room, bare=False)
        if complete:
            return {**schema, "$defs": whole}, ""
        kept, complete = self._nearest(uses, room, bare=True)
        if complete:
            note = f"over {most:,} bytes: the descriptions in its definitions were left out"
            return {**schema, "$defs": kept}, note
        needed = self.uses_of(*schema["properties"].values(), *kept.values())
        cut = {name: _outline(self._get(name).schema) for name in sorted(needed - kept.keys())}
        note = f"over {most:,} bytes: only {len(kept)} definitions are listed, the others were cut"
        return {**schema, "$defs": {**kept, **cut}}, note

    def _nearest(self, uses: frozenset[str], room: int, *, bare: bool) -> tuple[dict[str, Any], bool]:
        """Return the nearest definitions that fit, and True if that is all. `bare`: without descriptions."""
        found: dict[str, Any] = {}
        for name in self._reach(uses):
            definition = self._get(name)
            if bare not in definition.listed:
                schema = _without_texts(definition.schema) if bare else definition.schema
                definition.listed[bare] = schema, len(dumps(schema)) + len(name) + len('"":,')
            schema, size = definition.listed[bare]
            room -= size
            if room < 0:
                return found, False
            found[name] = schema
        return found, True

    def all(self) -> dict[str, Any]:
        """Return all definitions that have been built and are usable."""
        return {name: each.schema for name, each in self._definitions.items() if each.problem is None}

    def add(self, name: str, schema: Any) -> str:
        """Add a definition that is not in the document. Returns its name."""
        place = Place("\0", name)
        if place not in self._names:
            self._definitions[self._name(place, name)] = _Definition(schema)
        return self._names[place]

    def forget_document(self) -> None:
        """Free the memory of the document, once all definitions are built: it is as large as everything else."""
        self.document = Document({}, self.document.version, self.document.source)
        self._shared.clear()
        self._converted.clear()
        self._names.clear()

    def uses_of(self, *schemas: Any) -> frozenset[str]:
        """Return the names of the definitions that converted schemas refer to directly."""
        found: set[str] = set()
        stack = list(schemas)
        while stack:
            each = stack.pop()
            if isinstance(each, dict):
                target = each.get("$ref")
                if isinstance(target, str) and target.startswith("#/$defs/"):
                    found.add(target.removeprefix("#/$defs/"))
                # Only schemas: a default or an enum may have data that looks like a reference.
                stack.extend(inner for _, inner in iter_subschemas(each))
        return frozenset(found & self._places.keys())

    def mark_unusable(self, name: str, problem: str) -> None:
        """Record that a definition cannot be used, and why."""
        self._definitions[name].problem = problem
        self._good.clear()

    def _build(self, name: str) -> _Definition:
        if name not in self._definitions:
            place = self._places[name]
            try:
                made = self.convert(self.document.get(place), place.file)
                self._definitions[name] = _Definition(made, self.uses_of(made))
            except Unusable as reason:
                self._definitions[name] = _Definition(problem=str(reason))
            except Exception as error:  # noqa: BLE001 - a bug of ours in one schema must not affect the others
                problem = f"the schema {name} cannot be read: {type(error).__name__}: {error}"
                self._definitions[name] = _Definition(problem=problem)
        return self._definitions[name]

    def _name(self, place: Place, wanted: str) -> str:
        if place not in self._names:
            base = _UNNAMED.sub("_", wanted).strip("_")[:_LONGEST_NAME] or "schema"
            name, number = base, 1
            while name in self._places:
                number += 1
                name = f"{base}_{number}"
            self._names[place] = name
            self._places[name] = place
        return self._names[place]

    def _convert(self, node: Any, file: str, depth: int, hidden: frozenset[str] = frozenset()) -> Any:
        """Convert a schema. `hidden` has properties that another branch of the same `allOf` excludes."""
        if not isinstance(node, Mapping):
            return node
        if depth > MOST_DEPTH:
            raise Unusable(f"a schema is nested more than {MOST_DEPTH} levels deep")
        if isinstance(reference := node.get("$ref", node.get("$dynamicRef")), str):
            return self._convert_reference(reference, node, file, depth)
        hidden |= self._hidden_names(node, file)
        made: dict[str, Any] = {}
        for keyword, value in node.items():
            if keyword in _DROPPED or keyword.startswith("x-"):
                continue
            if keyword in _CONTAINERS:
                made[keyword] = self._convert_inner(keyword, value, file, depth + 1, hidden)
            elif (kept := _keep(keyword, value, hidden)) is not None:
                made[keyword] = kept[0]
        if "discriminator" in node:
            self._discriminate(node, made, file)
        return made

    def _convert_inner(self, keyword: str, value: Any, file: str, depth: int, hidden: frozenset[str]) -> Any:
        """Convert the schemas that a keyword holds."""
        if keyword in TABLES:
            left_out = hidden if keyword == "properties" else frozenset[str]()
            return {
                name: self._convert(each, file, depth)
                for name, each in as_object(value).items()
                if name not in left_out and (keyword != "patternProperties" or is_pattern(name))
            }
        if isinstance(value, list):
            inner = hidden if keyword == "allOf" else frozenset[str]()
            return [self._convert(each, file, depth, inner) for each in value]
        return self._convert(value, file, depth)

    def _convert_reference(
        self, reference: str, node: Mapping[str, Any], file: str, depth: int
    ) -> dict[str, Any]:
        place = self.document.locate(reference, file)
        self.document.get(place)  # a dangling reference is an error of the schema that contains it
        name = self._name(place, place.pointer.rpartition("/")[2] or "root")
        made: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
        beside = {key: value for key, value in node.items() if key not in ("$ref", "$dynamicRef")}
        if self.document.version != "3.1":  # the standard ignores siblings; these two are common and intended
            beside = {key: beside[key] for key in ("description", "nullable") if key in beside}
        if beside:
            made |= self._convert(beside, file, depth)
        return made

    def _hidden_names(self, node: Mapping[str, Any], file: str) -> frozenset[str]:
        """Return the names of properties that do not occur in this direction: `readOnly` ones are not sent."""
        flag = "readOnly" if self.direction == "request" else "writeOnly"
        return frozenset(
            name
            for each, where in iter_all_of(self.document, node, file)
            for name, inner in as_object(each.get("properties")).items()
            if as_object(inner).get(flag) is True
            or self.document.follow_object(inner, where)[0].get(flag) is True
        )

    def _discriminate(self, node: Mapping[str, Any], made: dict[str, Any], file: str) -> None:
        """Apply `discriminator`: each variant requires its own value of the discriminating property."""
        given = node["discriminator"]
        name = given.get("propertyName") if isinstance(given, Mapping) else given
        if not isinstance(name, str):
            return
        mapping = as_object(as_object(given).get("mapping"))
        targets = {
            key: self._variant(value, file) for key, value in mapping.items() if isinstance(value, str)
        }
        keyword = next((each for each in ("oneOf", "anyOf") if isinstance(node.get(each), list)), None)
        if keyword is None:
            if targets:
                kinds = ", ".join(list(targets)[:_MOST_KINDS])
                text = f"{made.get('description', '')} `{name}` selects the kind: {kinds}.".strip()
                made["description"] = tidy(text, 2 * LONGEST_TEXT)
            return
        branches = []
        for variant, branch in zip(node[keyword], made.pop(keyword), strict=True):
            reference = as_object(variant).get("$ref")
            if isinstance(reference, str) and isinstance(branch, dict):
                place = self._variant(reference, file)
                values = [key for key, target in targets.items() if target == place]
                values = values or [reference.rpartition("/")[2]]
                chosen: dict[str, Any] = {"const": values[0]} if len(values) == 1 else {"enum": values}
                branches.append({**branch, "properties": {name: chosen}, "required": [name]})
            else:
                branches.append(branch)
        made["anyOf"] = branches

    def _variant(self, target: str, file: str) -> Place | None:
        """Return the place of a variant, given as a reference or a schema name; None if there is none."""
        if "#" not in target and "/" not in target and not target.endswith((".json", ".yaml", ".yml")):
            is_swagger = self.document.version == "2.0"
            target = f"#/definitions/{target}" if is_swagger else f"#/components/schemas/{target}"
        try:
            return self.document.locate(target, file)
        except Unusable:
            return None


def iter_all_of(document: Document, schema: Any, file: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield a schema and those in its `allOf`, with references followed, each once and with its file."""
    seen: set[int] = set()  # schemas may inherit in cycles, or from the same schema several times
    left = [(schema, file)]
    while left:
        node, where = document.follow(*left.pop(0))
        if isinstance(node, Mapping) and id(node) not in seen:
            seen.add(id(node))
            yield node, where
            left += [(branch, where) for branch in as_list(node.get("allOf"))]


def find_invalid(schemas: Schemas, inputs: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Compile all schemas at once, dropping invalid keywords. Returns the reasons why inputs are invalid, by name.

    `inputs` are the input schemas of operations, without their definitions. Equal properties are one object (see
    `share`), so each is compiled once.
    """
    different = {id(each): each for schema in inputs.values() for each in schema["properties"].values()}
    together = {
        "type": "object",
        "properties": {str(number): each for number, each in enumerate(different.values())},
        "$defs": schemas.all(),
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in schemas.all()] or [{}],
    }
    try:
        _compile(together)
    except Unusable:
        return _find_invalid_singly(schemas, inputs)
    return {}


def _find_invalid_singly(schemas: Schemas, inputs: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Compile each definition and then each input by itself, which takes longer. Marks bad definitions unusable."""
    invalid: dict[str, str] = {}
    for name in schemas.all():
        try:
            table = {"x": {"$ref": f"#/$defs/{name}"}}
            _compile({"type": "object", "properties": table, "$defs": schemas.definitions({name})})
        except Unusable as reason:
            schemas.mark_unusable(name, str(reason))
    for name, schema in inputs.items():
        try:
            _compile({**schema, "$defs": schemas.definitions(schemas.uses_of(schema))})
        except Unusable as reason:
            invalid[name] = str(reason)
    return invalid


def _compile(schema: dict[str, Any]) -> None:
    """Drop keywords with invalid values, in place. `Unusable` if the schema does not compile even so."""
    try:
        check_work(schema)
        drop_invalid(schema, _ignore)
    except (Unrepairable, ToolDefinitionError) as reason:
        raise Unusable(str(reason)) from reason


def _encode(schema: Any) -> bytes:
    try:
        return dumps(schema)
    except (TypeError, ValueError) as error:
        raise Unusable(f"a schema contains a value that is not JSON: {error}") from error


def _outline(definition: Any) -> dict[str, Any]:
    kind = definition.get("type") if isinstance(definition, dict) else None
    return {"description": _CUT} if kind is None else {"type": kind, "description": _CUT}


def _without_texts(schema: Any, names: bool = False) -> Any:
    """Copy a schema without descriptions. `names`: the keys are property names, not keywords."""
    if isinstance(schema, list):
        return [_without_texts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: each
        if key in ("enum", "const", "default") and not names
        else _without_texts(each, key in TABLES and not names)
        for key, each in schema.items()
        if names or key != "description"
    }


def _keep(keyword: str, value: Any, hidden: frozenset[str]) -> tuple[Any] | None:
    """Return the value of a keyword that holds no schemas, in a tuple; None if it is left out."""
    if keyword == "required" and isinstance(value, list):
        names = [each for each in value if isinstance(each, str) and each not in hidden]
        return (names,) if names else None
    if keyword == "description":
        text = tidy(value, LONGEST_TEXT)
        return (text,) if text else None
    if keyword == "pattern" and not (isinstance(value, str) and is_pattern(value)):
        return None  # regular expressions of other languages differ
    return ("string",) if keyword == "type" and value == "file" else (value,)


@lru_cache(maxsize=4096)
def is_pattern(pattern: str) -> bool:
    """True if the validator accepts a regular expression."""
    try:
        from_json_schema({"type": "object", "patternProperties": {pattern: True}})
    except ToolDefinitionError:
        return False
    return True


def _ignore(_where: str, _what: str) -> None:
    """Ignore the report of a repair: a document with thousands of operations has thousands of repairs."""
