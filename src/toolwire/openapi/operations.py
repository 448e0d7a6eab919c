"""Reads the operations of a document: their parameters, bodies and security, and the schema of their arguments.

Owns the differences between Swagger 2.0 and OpenAPI 3, which end here: an `Operation` says where each argument
goes, whatever the document looked like. Arguments are the parameters by name, and `body`. Parameters of one name in
several places get the place in front (`path_id`, `query_id`). An operation that cannot be called right is left out
with the reason; one bad operation never costs the others. Pure.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, Literal
from urllib.parse import quote

from toolwire.catalog.profile.rules import climbs, is_header
from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.mend import parse_flag
from toolwire.catalog.tools.definitions import Skipped, slug
from toolwire.catalog.values import tidy
from toolwire.openapi.document import Document, Unusable
from toolwire.openapi.schemas import LONGEST_TEXT, Schemas
from toolwire.openapi.styles import Style

Where = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "text", "binary"]

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
_NEVER_SENT: Final = ("trace",)  # it sends our own headers back, secrets included
BODY: Final = "body"
"""The argument that holds the body of a request."""
_FILE: Final = "File"
_ARGUMENT: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)
_TEMPLATE: Final = re.compile(r"\{([^{}/]*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_SAFE: Final = "/%!$&'()*+,;=:@~\\"
_QUERY: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_MEDIA: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+*-]+")
# Set from what else the document says, or from credentials.
_FOREIGN_HEADERS: Final = frozenset({"accept", "authorization", "cookie", "set-cookie"})
_SEPARATORS: Final = {"csv": ",", "ssv": "%20", "tsv": "%09", "pipes": "%7C"}
_STYLES: Final[dict[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# Keys of a parameter of Swagger 2 that are no part of its schema.
_NO_SCHEMA: Final = frozenset(
    {"name", "in", "required", "description", "collectionFormat", "allowEmptyValue"}
)
# Content types below application/ that are text; an x- before them changes nothing.
_TEXT_TYPES: Final = frozenset(
    {"json", "jsonl", "ndjson", "xml", "yaml", "csv", "graphql", "javascript", "sql", "www-form-urlencoded"}
)
_MOST_PARAMETERS: Final = 500
_MOST_TAGS: Final = 50
_LONGEST_TAG: Final = 80
_REPORT_EVERY: Final = 100
_FILE_SCHEMA: Final = {
    "description": "A file: its bytes in base64, or an object.",
    "anyOf": [
        {"type": "string", "description": "The bytes in base64."},
        {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The contents, if they are text."},
                "base64": {"type": "string", "description": "The contents, if they are not text."},
                "filename": {"type": "string"},
                "content_type": {"type": "string", "description": "Such as image/png."},
            },
            "additionalProperties": False,
            "anyOf": [{"required": ["text"]}, {"required": ["base64"]}],
        },
    ],
}
_BASE64: Final = {"type": "string", "contentEncoding": "base64", "description": "The bytes in base64."}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: the argument that has its value, and where that goes."""

    argument: str
    name: str
    place: Where
    style: Style
    required: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """How a property of a form is written."""

    style: Style = field(default_factory=Style)
    content_type: str = ""
    """Of a part of a multipart body; "" for the usual one."""
    file: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request."""

    media_type: str
    kind: BodyKind
    required: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict)


Requirement = Mapping[str, Sequence[str]]
"""Schemes that are needed together, by name, with their scopes."""


@dataclass(frozen=True)
class Operation:
    """An operation that can be called."""

    label: str
    """Its method and path, as the document has them."""
    method: str
    path: str
    """With `{name}` where path parameters go."""
    name: str
    """Its operationId, or what stands for it."""
    description: str
    tags: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[Requirement, ...]
    """Any one of these will do; none are needed if there are none."""
    schema: dict[str, Any]
    """Of the arguments, without its definitions."""
    uses: frozenset[str]
    """The names of the definitions that the schema refers to directly."""
    output: tuple[tuple[Any, str], ...] = ()
    """The schemas of successful JSON responses, as the document has them, each with its file."""
    server: str = ""
    """The URL of a server that this operation has for itself."""
    query: str = ""
    """What stands behind a question mark in the path."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """An operation as the document lists it, not read yet."""

    method: str
    path: str
    name: str
    """Its operationId; made of method and path if it has none."""
    tags: tuple[str, ...]
    item: Mapping[str, Any]
    item_file: str
    operation: Any
    file: str

    @property
    def label(self) -> str:
        """Its method and path."""
        return f"{self.method.upper()} {self.path}"


Progress = Callable[[int, int], None]


def list_operations(document: Document) -> tuple[list[Listed], list[Skipped]]:
    """List the operations of a document, and those that cannot even be listed."""
    listed: list[Listed] = []
    skipped: list[Skipped] = []
    for path, given in document.data.get("paths", {}).items():
        if path.startswith("x-"):
            continue
        try:
            item, file = document.follow(given)
        except Unusable as reason:
            skipped.append(Skipped(path, path, str(reason)))
            continue
        if not isinstance(item, Mapping):
            skipped.append(Skipped(path, path, "it is not a table of operations"))
            continue
        for method in (*METHODS, *_NEVER_SENT):
            if method not in item:
                continue
            label = f"{method.upper()} {path}"
            try:
                operation, where = document.follow(item[method], file)
            except Unusable as reason:
                skipped.append(Skipped(label, label, str(reason)))
                continue
            told = operation if isinstance(operation, Mapping) else {}
            name = _operation_id(told) or _make_name(method, path)
            listed.append(Listed(method, path, name, _tags(told), item, file, operation, where))
    return listed, skipped


def read_operations(
    document: Document,
    schemas: Schemas,
    listed: Sequence[Listed],
    reserved: Collection[tuple[str, str]] = (),
    on_progress: Progress = lambda _done, _all: None,
) -> tuple[list[Operation], list[Skipped]]:
    """Read these operations. Returns those that can be called, and the others with the reason.

    No argument of a model goes where credentials go: `reserved` has these places, each with a name.
    """
    reader = _Reader(document, schemas, reserved)
    usable: list[Operation] = []
    skipped: list[Skipped] = []
    for number, each in enumerate(listed):
        if number % _REPORT_EVERY == 0:
            on_progress(number, len(listed))
        try:
            operation = reader.read(each)
            schemas.check(operation.uses)
            usable.append(operation)
        except (Unusable, Unrepairable) as reason:
            skipped.append(Skipped(each.label, each.label, str(reason)))
        except Exception as error:  # noqa: BLE001 - a mistake of ours with one operation must not cost the others
            what = f"it cannot be read: {type(error).__name__}: {error}"
            skipped.append(Skipped(each.label, each.label, what))
    on_progress(len(listed), len(listed))
    return usable, skipped


def _operation_id(operation: Mapping[str, Any]) -> str:
    given = operation.get("operationId")
    return given if isinstance(given, str) else ""


def _tags(operation: Mapping[str, Any]) -> tuple[str, ...]:
    given = operation.get("tags")
    listed = given[:_MOST_TAGS] if isinstance(given, list) else []
    return tuple(tag for each in listed if (tag := tidy(each, _LONGEST_TAG)))


class _Reader:
    """Reads single operations."""

    def __init__(self, document: Document, schemas: Schemas, reserved: Collection[tuple[str, str]]) -> None:
        self._document = document
        self._schemas = schemas
        self._old = document.version == "2.0"
        self._reserved = reserved

    def read(self, listed: Listed) -> Operation:
        """Read one operation. `Unusable` says why it cannot be called."""
        method, path, operation, file = listed.method, listed.path, listed.operation, listed.file
        if method in _NEVER_SENT:
            raise Unusable(f"{method.upper()} sends our own headers back, credentials included")
        if not isinstance(operation, Mapping):
            raise Unusable("it is not a table")
        plain, query = _check_path(path)
        notes: list[str] = []
        given = self._parameters(listed.item, listed.item_file, operation, file)
        body, body_schema = self._body(given, operation, file)
        found = list(self._read_parameters(given, plain, notes))
        arguments = _name_arguments([(each["in"], each["name"]) for each, _ in found], body is not None)
        parameters: list[Parameter] = []
        properties: dict[str, Any] = {}
        required: list[str] = []
        for argument, (parameter, where) in zip(arguments, found, strict=True):
            style, schema = self._parameter(parameter, where)
            name, place = parameter["name"], parameter["in"]
            wanted = place == "path" or parse_flag(parameter.get("required")) is True
            parameters.append(Parameter(argument, name, place, style, wanted))
            properties[argument] = self._schemas.share(
                _describe(schema, parameter.get("description"), argument, name)
            )
            if wanted:
                required.append(argument)
        if body is not None:
            properties[BODY] = self._schemas.share(body_schema)
            if body.required:
                required.append(BODY)
        schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        return Operation(
            label=listed.label,
            method=method.upper(),
            path=plain,
            name=listed.name,
            description=_write_description(operation, listed.label),
            tags=listed.tags,
            parameters=tuple(parameters),
            body=body,
            security=self._security(operation),
            schema=schema,
            uses=self._schemas.uses_of(properties),
            output=self._output(operation, file),
            server=_own_server(operation, listed.item, self._document.data),
            query=query,
            notes=tuple(notes),
        )

    # Parameters.

    def _parameters(
        self, item: Mapping[str, Any], item_file: str, operation: Mapping[str, Any], file: str
    ) -> list[tuple[Mapping[str, Any], str]]:
        """Return the parameters of the path and of the operation, which replace those, without references."""
        found: dict[tuple[str, str], tuple[Mapping[str, Any], str]] = {}
        for owner, where in ((item, item_file), (operation, file)):
            listed = owner.get("parameters") or []
            if not isinstance(listed, list) or len(listed) > _MOST_PARAMETERS:
                raise Unusable("`parameters` is not a list, or a very long one")
            for each in listed:
                parameter, place = self._document.follow(each, where)
                name = parameter.get("name") if isinstance(parameter, Mapping) else None
                if not isinstance(name, str) or not isinstance(parameter.get("in"), str):
                    raise Unusable("a parameter has no name, or does not say where it goes")
                found[parameter["in"], name] = (parameter, place)
        return list(found.values())

    def _read_parameters(
        self, given: list[tuple[Mapping[str, Any], str]], path: str, notes: list[str]
    ) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Yield the parameters that an argument is for."""
        needed = list(dict.fromkeys(_TEMPLATE.findall(path)))
        for parameter, file in given:
            name, place = parameter["name"], parameter["in"]
            if place in ("body", "formData"):
                continue
            if place not in _STYLES:
                raise Unusable(
                    f"the parameter {name[:80]!r} goes into {str(place)[:40]!r}, which there is not"
                )
            if place == "path":
                if name not in needed:
                    notes.append(f"the path has no {{{name[:80]}}}")
                    continue
                needed.remove(name)
            if place == "header" and (name.lower() in _FOREIGN_HEADERS or not is_header(name)):
                notes.append(f"the header {name[:80]!r} is not for a model to set")
                continue
            if (place, name.lower() if place == "header" else name) in self._reserved:
                notes.append(
                    f"the {place} parameter {name[:80]!r} is for credentials, and not for a model to set"
                )
                continue
            yield parameter, file
        for name in needed:
            notes.append(f"the path has {{{name[:80]}}}, which is not described")
            yield (
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "type": "string",
                    "schema": {"type": "string"},
                },
                "",
            )

    def _parameter(self, parameter: Mapping[str, Any], file: str) -> tuple[Style, Any]:
        """Return how a parameter is written, and its schema."""
        place = parameter["in"]
        content = parameter.get("content")
        if isinstance(content, Mapping) and content:
            media, told = next(iter(content.items()))
            told, file = self._document.follow(told, file)
            schema = self._schemas.convert(
                told.get("schema", {}) if isinstance(told, Mapping) else {}, file
            ).schema
            if _is_json(str(media).lower()):
                return Style("json"), schema
            return Style("form" if place in ("query", "cookie") else "simple", explode=False), {
                "type": "string"
            }
        if self._old:
            style = _swagger_style(parameter)
            own = {key: value for key, value in parameter.items() if key not in _NO_SCHEMA}
            schema = self._schemas.convert(own, file).schema
        else:
            style = _style(parameter)
            schema = self._schemas.convert(parameter.get("schema", {}), file).schema
        if parse_flag(parameter.get("allowEmptyValue")) and place == "query":
            schema = {"anyOf": [schema, {"const": ""}]}
        return style, schema

    # Bodies.

    def _body(
        self, given: list[tuple[Mapping[str, Any], str]], operation: Mapping[str, Any], file: str
    ) -> tuple[Body | None, Any]:
        if self._old:
            return self._swagger_body(given, operation)
        told, file = self._document.follow(operation.get("requestBody"), file)
        if told is None:
            return None, None
        content = told.get("content") if isinstance(told, Mapping) else None
        if not isinstance(content, Mapping) or not content:
            raise Unusable("its body has no content type")
        media, kind = _choose_media(content, self._has_files(content, file))
        inner, inner_file = self._document.follow(content[media], file)
        inner = inner if isinstance(inner, Mapping) else {}
        body, schema = self._make_body(
            media, kind, inner.get("schema", {}), inner.get("encoding"), inner_file
        )
        required = parse_flag(told.get("required")) is True
        made = Body(body.media_type, body.kind, required, body.fields)
        return made, _describe(schema, told.get("description"), BODY, BODY)

    def _swagger_body(
        self, given: list[tuple[Mapping[str, Any], str]], operation: Mapping[str, Any]
    ) -> tuple[Body | None, Any]:
        consumes = operation.get("consumes", self._document.data.get("consumes"))
        medias = [str(each) for each in consumes] if isinstance(consumes, list) else []
        whole = next((each for each in given if each[0]["in"] == "body"), None)
        fields = [each for each in given if each[0]["in"] == "formData"]
        if whole is not None:
            parameter, file = whole
            media, kind = _choose_media(dict.fromkeys(medias or ["application/json"], None), files=False)
            body, schema = self._make_body(media, kind, parameter.get("schema", {}), None, file)
            required = parse_flag(parameter.get("required")) is True
            made = Body(body.media_type, body.kind, required, body.fields)
            return made, _describe(schema, parameter.get("description"), BODY, BODY)
        if not fields:
            return None, None
        files = any(parameter.get("type") == "file" for parameter, _ in fields)
        forms = [each for each in medias if _kind(each.lower()) in ("form", "multipart")]
        multipart = files or (bool(forms) and _kind(forms[0].lower()) == "multipart")
        made_fields: dict[str, Field] = {}
        properties: dict[str, Any] = {}
        required_names = []
        for parameter, file in fields:
            name = parameter["name"]
            if parameter.get("type") == "file":
                schema, made_fields[name] = self._file(), Field(file=True)
            else:
                own = {key: value for key, value in parameter.items() if key not in _NO_SCHEMA}
                schema = self._schemas.convert(own, file).schema
                made_fields[name] = Field(_swagger_style(parameter))
            properties[name] = _describe(schema, parameter.get("description"), name, name)
            if parse_flag(parameter.get("required")) is True:
                required_names.append(name)
        table = {"type": "object", "properties": properties, "additionalProperties": False}
        if required_names:
            table["required"] = required_names
        media = "multipart/form-data" if multipart else "application/x-www-form-urlencoded"
        kind = "multipart" if multipart else "form"
        return Body(media, kind, bool(required_names), made_fields), table

    def _make_body(
        self, media: str, kind: BodyKind, schema: Any, encoding: Any, file: str
    ) -> tuple[Body, Any]:
        sent = "application/json" if "*" in media else media
        if kind == "json":
            return Body(sent, kind), self._schemas.convert(schema, file).schema
        if kind == "text":
            return Body(media.replace("*", "plain"), kind), {
                "type": "string",
                "description": f"Text of type {media.partition(';')[0]}.",
            }
        if kind == "binary":
            return Body("application/octet-stream" if "*" in media else media, kind), dict(_BASE64)
        return self._form(media, kind, schema, encoding, file)

    def _form(self, media: str, kind: BodyKind, schema: Any, encoding: Any, file: str) -> tuple[Body, Any]:
        """Read a body of named fields. Its properties may be spread over `allOf`."""
        table = _Table(self._document)
        table.collect(schema, file)
        encodings = encoding if isinstance(encoding, Mapping) else {}
        fields: dict[str, Field] = {}
        properties: dict[str, Any] = {}
        for name, (given, where) in table.properties.items():
            target, target_file = self._document.follow(given, where)
            target = target if isinstance(target, Mapping) else {}
            if target.get("readOnly") is True:
                continue
            told = encodings.get(name)
            told = told if isinstance(told, Mapping) else {}
            many, files = self._is_file(target, target_file, kind)
            fields[name] = Field(_field_style(told, target, kind), _content_type(told), files)
            properties[name] = self._schemas.convert(given, where).schema
            if files:
                single = self._file()
                properties[name] = {"type": "array", "items": single} if many else single
                properties[name] = _describe(properties[name], target.get("description"), name, name)
        if not properties:
            return Body(media, kind, fields=fields), self._schemas.convert(schema, file).schema
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [name for name in table.required if name in properties]:
            made["required"] = list(dict.fromkeys(required))
        if table.closed:
            made["additionalProperties"] = False
        return Body(media, kind, fields=fields), made

    def _has_files(self, content: Mapping[str, Any], file: str) -> bool:
        """True if a multipart form has files in it."""
        for media, told in content.items():
            if _kind(str(media).lower()) == "multipart" and isinstance(told, Mapping):
                table = _Table(self._document)
                table.collect(told.get("schema", {}), file)
                for given, where in table.properties.values():
                    target, target_file = self._document.follow(given, where)
                    if isinstance(target, Mapping) and self._is_file(target, target_file, "multipart")[1]:
                        return True
        return False

    def _is_file(self, schema: Mapping[str, Any], file: str, kind: BodyKind) -> tuple[bool, bool]:
        """Return whether a field is a list, and whether it is a file or a list of files."""
        many = schema.get("type") == "array" or (
            isinstance(schema.get("type"), list) and "array" in schema["type"]
        )
        inner = schema.get("items") if many else schema
        inner, _ = self._document.follow(inner, file)
        if kind != "multipart" or not isinstance(inner, Mapping):
            return many, False
        encoded = "contentEncoding" in inner
        binary = inner.get("format") == "binary" or inner.get("type") == "file"
        return many, binary or ("contentMediaType" in inner and not encoded)

    def _file(self) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self._schemas.add(_FILE, _FILE_SCHEMA)}"}

    # The rest.

    def _security(self, operation: Mapping[str, Any]) -> tuple[Requirement, ...]:
        given = operation.get("security", self._document.data.get("security"))
        if given is None:
            return ()
        if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
            raise Unusable("`security` is not a list of tables")
        return tuple(
            {
                str(name): tuple(map(str, scopes)) if isinstance(scopes, list) else ()
                for name, scopes in each.items()
            }
            for each in given
        )

    def _output(self, operation: Mapping[str, Any], file: str) -> tuple[tuple[Any, str], ...]:
        """Return the schemas of the successful JSON responses, each with its file."""
        found: list[tuple[Any, str]] = []
        responses = operation.get("responses")
        for status, given in responses.items() if isinstance(responses, Mapping) else ():
            if not str(status).startswith("2"):
                continue
            try:
                told, where = self._document.follow(given, file)
            except Unusable:
                continue
            if not isinstance(told, Mapping):
                continue
            if self._old:
                if isinstance(told.get("schema"), Mapping):
                    found.append((told["schema"], where))
                continue
            content = told.get("content")
            for media, inner in content.items() if isinstance(content, Mapping) else ():
                if _is_json(str(media).lower()) and isinstance(inner, Mapping) and "schema" in inner:
                    found.append((inner["schema"], where))
                    break
        return tuple(found)


class _Table:
    """The properties of an object schema, those of its `allOf` included."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.properties: dict[str, tuple[Any, str]] = {}
        self.required: list[str] = []
        self.closed = False

    def collect(self, schema: Any, file: str) -> None:
        """Collect the properties of a schema, each branch once."""
        seen: set[int] = set()
        left: list[tuple[Any, str]] = [(schema, file)]
        while left:
            node, file = self._document.follow(*left.pop(0))
            if not isinstance(node, Mapping) or id(node) in seen:
                continue
            table, needed, branches = node.get("properties"), node.get("required"), node.get("allOf")
            if isinstance(table, Mapping):
                self.properties.update({str(name): (each, file) for name, each in table.items()})
            if isinstance(needed, list):
                self.required += [each for each in needed if isinstance(each, str)]
            self.closed = self.closed or (not seen and node.get("additionalProperties") is False)
            seen.add(id(node))
            left += [(branch, file) for branch in branches] if isinstance(branches, list) else []


# --- paths ---


def _check_path(path: str) -> tuple[str, str]:
    """Return a path without its query, and the query. `Unusable` for one that cannot be sent as it is."""
    plain, _, query = path.partition("?")
    if "#" not in plain:  # spaces and other scripts are encoded
        pieces = _TEMPLATE.split(plain)  # every other one is a name
        names = [f"{{{name}}}" for name in pieces[1::2]]
        plain = "".join(
            text
            for pair in zip_longest([quote(piece, safe=_SAFE) for piece in pieces[::2]], names, fillvalue="")
            for text in pair
        )
    literal = _TEMPLATE.sub("x", plain)
    if not plain.startswith("/") or plain.startswith("//") or not _LITERAL.fullmatch(literal):
        raise Unusable("its path has characters that a path cannot have, or does not begin with one slash")
    if climbs(literal) or not _QUERY.fullmatch(query):
        raise Unusable("its path has a step . or .., or a query that cannot be sent")
    return plain, query


def _make_name(method: str, path: str) -> str:
    """Make a name of method and path: `GET /pets/{id}` is `get_pets_by_id`."""
    steps = [_TEMPLATE.sub(lambda found: f"by_{found[1]}", step) for step in path.split("/")]
    return "_".join([method, *filter(None, (slug(step) for step in steps))])


def _own_server(operation: Mapping[str, Any], item: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """Return the URL of the server that an operation or its path has; "" for none, or that which all use."""
    urls = _server_urls(operation) or _server_urls(item)
    usual = _server_urls(document)[:1]  # base_url stands for the first one; the others are other places
    return "" if not urls or set(urls) & set(usual) else urls[0]


def _server_urls(owner: Mapping[str, Any]) -> list[str]:
    listed = owner.get("servers")
    tables = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    return [each["url"] for each in tables if isinstance(each.get("url"), str)]


# --- texts ---


def _write_description(operation: Mapping[str, Any], label: str) -> str:
    summary, long = tidy(operation.get("summary"), LONGEST_TEXT), tidy(operation.get("description"), 1_500)
    old = "Deprecated. " if operation.get("deprecated") is True else ""
    text = long if not summary or long.startswith(summary) else "\n\n".join(filter(None, (summary, long)))
    label = tidy(label, LONGEST_TEXT)
    return f"{old}{text}\n\n{label}" if text else f"{old}{label}"


def _describe(schema: Any, description: Any, argument: str, name: str) -> Any:
    """Add the description of a parameter to its schema, and its real name where the argument has another."""
    text = tidy(description, 2 * LONGEST_TEXT)
    if argument != name and not argument.endswith(f"_{name}"):
        text = f"{text} Sent as {tidy(name, 80)}.".strip()
    if not text or not isinstance(schema, Mapping):
        return schema
    return {**schema, "description": text}


def _name_arguments(found: Sequence[tuple[str, str]], has_body: bool) -> list[str]:
    """Name the arguments of parameters: each by its own name if that is legal and no other has it."""
    plain = [name if _ARGUMENT.fullmatch(name) else slug(name)[:64] or "value" for _, name in found]
    counts = Counter(plain)
    taken = {BODY} if has_body else set()
    names: list[str] = []
    for (place, _), name in zip(found, plain, strict=True):
        wanted = f"{place}_{name}"[:64] if counts[name] > 1 or name in taken else name
        chosen, number = wanted, 1
        while chosen in taken or (chosen != name and chosen in counts):
            number += 1
            chosen = f"{wanted[:60]}_{number}"
        taken.add(chosen)
        names.append(chosen)
    return names


# --- styles ---


def _style(parameter: Mapping[str, Any]) -> Style:
    """Return the style of a parameter of OpenAPI 3. `Unusable` for one that there is not."""
    place = parameter["in"]
    given = parameter.get("style") or _STYLES[place][0]
    if given not in _STYLES[place]:
        raise Unusable(f"the {place} parameter {parameter['name'][:80]!r} has the style {str(given)[:40]!r}")
    return _make_style(given, parameter)


def _make_style(given: str, told: Mapping[str, Any]) -> Style:
    explode = parse_flag(told.get("explode"))
    reserved = parse_flag(told.get("allowReserved")) is True
    separator = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(given, ",")
    exploded = given in ("form", "deepObject") if explode is None else explode
    kind: Any = "form" if given in ("spaceDelimited", "pipeDelimited") else given
    return Style(kind, exploded, separator, reserved)


def _swagger_style(parameter: Mapping[str, Any]) -> Style:
    form = parameter.get("collectionFormat") or "csv"
    kind: Any = "form" if parameter["in"] in ("query", "formData") else "simple"
    if form == "multi" and kind == "form":
        return Style(kind, explode=True)
    if form not in _SEPARATORS:
        raise Unusable(
            f"the parameter {parameter['name'][:80]!r} has the collectionFormat {str(form)[:40]!r}"
        )
    return Style(kind, explode=False, separator=_SEPARATORS[form])


def _field_style(told: Mapping[str, Any], schema: Mapping[str, Any], kind: BodyKind) -> Style:
    """Return how a field of a form is written: by its `encoding`, else objects as JSON and lists repeated."""
    given = told.get("style")
    if isinstance(given, str) and given in _STYLES["query"]:
        return _make_style(given, told)
    if "explode" in told or "allowReserved" in told:
        return _make_style("form", told)
    if _is_json(_content_type(told)):
        return Style("json")
    nested = schema.get("type") == "object" or "properties" in schema
    return Style("json") if nested or (kind == "multipart" and "allOf" in schema) else Style()


def _content_type(told: Mapping[str, Any]) -> str:
    given = told.get("contentType")
    first = given.partition(",")[0].strip().lower() if isinstance(given, str) else ""
    return first if _MEDIA.fullmatch(first) and "*" not in first else ""


# --- content types ---


def _is_json(media: str) -> bool:
    plain = media.partition(";")[0].strip()
    return plain in ("application/json", "text/json") or plain.endswith("+json")


def is_text(media: str) -> bool:
    """True if a content type, without its parameters, is text."""
    kind = media.partition("/")[2]
    return (
        media.startswith("text/")
        or kind.removeprefix("x-") in _TEXT_TYPES
        or kind.endswith(("+json", "+xml", "+yaml"))
    )


def _kind(media: str) -> BodyKind | None:
    """Return the kind of body that a content type means; None for one that cannot be written."""
    plain = media.partition(";")[0].strip()
    if _is_json(plain) or plain in ("*/*", "application/*"):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain == "multipart/form-data":
        return "multipart"
    if not _MEDIA.fullmatch(plain) or plain.startswith("multipart/"):
        return None
    return "text" if is_text(plain) else "binary"


_ORDER: Final[tuple[BodyKind, ...]] = ("json", "form", "multipart", "text", "binary")


def _choose_media(content: Mapping[str, Any], files: bool) -> tuple[str, BodyKind]:
    """Choose the content type that a model can write best. A form with files goes before one without."""
    headers = [each for each in map(str, content) if each.isascii() and each.isprintable()]
    kinds = [(media, kind) for media in headers if (kind := _kind(media.lower())) is not None]
    if not kinds:
        raise Unusable(f"its body is of type {', '.join(map(str, content))[:100]}, which cannot be written")
    order = ("multipart", *_ORDER) if files else _ORDER
    exact = [each for each in kinds if "*" not in each[0]] or kinds
    return min(exact, key=lambda each: order.index(each[1]))
