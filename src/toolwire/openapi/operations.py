"""Reads the operations of a document: their parameters, bodies and security, and the schema of their arguments.

Owns the differences between Swagger 2.0 and OpenAPI 3, and hides them: an `Operation` says where each argument
goes, for either. Arguments are the parameters by name, and `body`. If parameters in several places share a name,
each is prefixed with its place (`path_id`, `query_id`). An operation that cannot be called correctly is skipped
with a reason; it does not affect the others. Pure.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import quote

from toolwire.catalog.profile.rules import climbs, is_header
from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.nodes import parse_flag
from toolwire.catalog.tools.definitions import Skipped, slug
from toolwire.catalog.values import tidy
from toolwire.openapi.document import Document, Unusable, as_list, as_object
from toolwire.openapi.schemas import LONGEST_TEXT, Schemas, iter_all_of
from toolwire.openapi.styles import Style

Where = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "text", "binary"]

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
_NEVER_SENT: Final = ("trace",)  # the response to TRACE repeats our headers, credentials included
BODY: Final = "body"
"""The name of the argument that holds the request body."""
_FILE: Final = "File"
_ARGUMENT: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)
_TEMPLATE: Final = re.compile(r"\{([^{}/]*)\}")
_PIECE: Final = re.compile(r"(\{[^{}/]*\})|[^{]+|\{")
"""A placeholder, or the text between two."""
_LITERAL: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_SAFE: Final = "/%!$&'()*+,;=:@~\\"
_QUERY: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_MEDIA: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+*-]+")
# Set from other parts of the document or from credentials, never by an argument.
_RESERVED_HEADERS: Final = frozenset({"accept", "authorization", "cookie", "set-cookie"})
_SEPARATORS: Final = {"csv": ",", "ssv": "%20", "tsv": "%09", "pipes": "%7C"}
_STYLES: Final[dict[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# Keys of a Swagger 2 parameter that are not part of its schema.
_NOT_SCHEMA: Final = frozenset(
    {"name", "in", "required", "description", "collectionFormat", "allowEmptyValue"}
)
# A path parameter that no parameter of the document describes, for every version.
_UNDESCRIBED: Final = {"in": "path", "required": True, "type": "string", "schema": {"type": "string"}}
# Subtypes of application/ that are text, with or without an x- prefix.
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
    """One parameter: the argument that holds its value, and where in the request it goes."""

    argument: str
    name: str
    place: Where
    style: Style


@dataclass(frozen=True, slots=True)
class Field:
    """How a property of a form is encoded."""

    style: Style = field(default_factory=Style)
    content_type: str = ""
    """The content type of its part in a multipart body; "" for the default."""
    file: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request."""

    media_type: str
    kind: BodyKind
    required: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict)


Requirement = Mapping[str, Sequence[str]]
"""Security schemes that are needed together: their scopes by scheme name."""


@dataclass(frozen=True)
class Operation:
    """An operation that can be called."""

    label: str
    """Its method and path, as in the document."""
    method: str
    path: str
    """With a `{name}` placeholder for each path parameter."""
    name: str
    """Its operationId, or a name made of method and path."""
    description: str
    tags: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[Requirement, ...]
    """Alternatives: one of them must be met. If empty, no credentials are needed."""
    schema: dict[str, Any]
    """The schema of the arguments, without its definitions."""
    uses: frozenset[str]
    """The names of the definitions that the schema refers to directly."""
    output: tuple[tuple[Any, str], ...] = ()
    """The schemas of successful JSON responses, not converted yet, each with its file."""
    server: str = ""
    """The URL of the operation's own server; "" if it has none."""
    query: str = ""
    """The query string that the path contains, without the question mark."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedOperation:
    """An operation as the document lists it, before it is read."""

    method: str
    path: str
    name: str
    """Its operationId, or a name made of method and path."""
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


def list_operations(document: Document) -> tuple[list[ListedOperation], list[Skipped]]:
    """List the operations of a document. Returns them, and the paths and operations that cannot be read at all."""
    listed: list[ListedOperation] = []
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
            skipped.append(Skipped(path, path, "it is not an object with operations"))
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
            fields = as_object(operation)
            name = _operation_id(fields) or _make_name(method, path)
            listed.append(ListedOperation(method, path, name, _tags(fields), item, file, operation, where))
    return listed, skipped


def read_operations(
    document: Document,
    schemas: Schemas,
    listed: Sequence[ListedOperation],
    reserved: Collection[tuple[str, str]],
    on_progress: Progress,
) -> tuple[list[Operation], list[Skipped]]:
    """Read these operations. Returns those that can be called, and the others with the reason why not.

    `reserved` has the places (with names) where credentials go: a parameter there does not become an argument.
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
        except (Unusable, Unrepairable) as error:
            skipped.append(Skipped(each.label, each.label, str(error)))
        except Exception as error:  # noqa: BLE001 - a bug of ours in one operation must not affect the others
            reason = f"it cannot be read: {type(error).__name__}: {error}"
            skipped.append(Skipped(each.label, each.label, reason))
    on_progress(len(listed), len(listed))
    return usable, skipped


def _operation_id(operation: Mapping[str, Any]) -> str:
    given = operation.get("operationId")
    return given if isinstance(given, str) else ""


def _tags(operation: Mapping[str, Any]) -> tuple[str, ...]:
    listed = as_list(operation.get("tags"))[:_MOST_TAGS]
    return tuple(tag for each in listed if (tag := tidy(each, _LONGEST_TAG)))


class _Reader:
    """Reads single operations."""

    def __init__(self, document: Document, schemas: Schemas, reserved: Collection[tuple[str, str]]) -> None:
        self._document = document
        self._schemas = schemas
        self._is_swagger = document.version == "2.0"
        self._reserved = reserved

    def read(self, listed: ListedOperation) -> Operation:
        """Read one operation. `Unusable` says why it cannot be called."""
        method, path, operation, file = listed.method, listed.path, listed.operation, listed.file
        if method in _NEVER_SENT:
            raise Unusable(
                f"the response to {method.upper()} repeats the request's headers, credentials included"
            )
        if not isinstance(operation, Mapping):
            raise Unusable("it is not an object")
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
            parameters.append(Parameter(argument, name, place, style))
            properties[argument] = self._schemas.share(
                _describe(schema, parameter.get("description"), argument, name)
            )
            if place == "path" or parse_flag(parameter.get("required")) is True:
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
            uses=self._schemas.uses_of(*properties.values()),
            output=self._output(operation, file),
            server=_own_server(operation, listed.item, self._document.data),
            query=query,
            notes=tuple(notes),
        )

    # Parameters.

    def _parameters(
        self, item: Mapping[str, Any], item_file: str, operation: Mapping[str, Any], file: str
    ) -> list[tuple[Mapping[str, Any], str]]:
        """Return the parameters of the path and the operation, with references followed.

        A parameter of the operation replaces one of the path with the same place and name.
        """
        found: dict[tuple[str, str], tuple[Mapping[str, Any], str]] = {}
        for owner, where in ((item, item_file), (operation, file)):
            listed = owner.get("parameters") or []
            if not isinstance(listed, list) or len(listed) > _MOST_PARAMETERS:
                raise Unusable(f"`parameters` is not a list, or has more than {_MOST_PARAMETERS} entries")
            for each in listed:
                parameter, place = self._document.follow(each, where)
                name = parameter.get("name") if isinstance(parameter, Mapping) else None
                if not isinstance(name, str) or not isinstance(parameter.get("in"), str):
                    raise Unusable("a parameter has no `name` or no `in`")
                found[parameter["in"], name] = (parameter, place)
        return list(found.values())

    def _read_parameters(
        self, given: list[tuple[Mapping[str, Any], str]], path: str, notes: list[str]
    ) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Yield the parameters that become arguments. Parameters of the body are read elsewhere."""
        needed = list(dict.fromkeys(_TEMPLATE.findall(path)))
        for parameter, file in given:
            name, place = parameter["name"], parameter["in"]
            if place in ("body", "formData"):
                continue
            if place not in _STYLES:
                raise Unusable(f"the parameter {name[:80]!r} has an unknown place, `in: {str(place)[:40]}`")
            if place == "path":
                if name not in needed:
                    notes.append(
                        f"the path parameter {name[:80]!r} is ignored: the path has no {{{name[:80]}}}"
                    )
                    continue
                needed.remove(name)
            if place == "header" and (name.lower() in _RESERVED_HEADERS or not is_header(name)):
                notes.append(f"the header {name[:80]!r} is ignored: a model must not set it")
                continue
            if (place, name.lower() if place == "header" else name) in self._reserved:
                notes.append(
                    f"the {place} parameter {name[:80]!r} is ignored: it is for credentials, not for a model"
                )
                continue
            yield parameter, file
        for name in needed:
            notes.append(
                f"the path has {{{name[:80]}}}, but no parameter describes it; it is sent as a string"
            )
            yield {"name": name, **_UNDESCRIBED}, ""

    def _parameter(self, parameter: Mapping[str, Any], file: str) -> tuple[Style, Any]:
        """Return how a parameter is serialised, and its schema."""
        place = parameter["in"]
        content = parameter.get("content")
        if isinstance(content, Mapping) and content:
            media, given = next(iter(content.items()))
            inner, file = self._document.follow_object(given, file)
            schema = self._schemas.convert(inner.get("schema", {}), file)
            if _is_json(str(media).lower()):
                return Style("json"), schema
            style = Style("form" if place in ("query", "cookie") else "simple", explode=False)
            return style, {"type": "string"}
        if self._is_swagger:
            style, schema = self._swagger_parameter(parameter, file)
        else:
            style = _style(parameter)
            schema = self._schemas.convert(parameter.get("schema", {}), file)
        if parse_flag(parameter.get("allowEmptyValue")) and place == "query":
            schema = {"anyOf": [schema, {"const": ""}]}
        return style, schema

    def _swagger_parameter(self, parameter: Mapping[str, Any], file: str) -> tuple[Style, Any]:
        own = {key: value for key, value in parameter.items() if key not in _NOT_SCHEMA}
        return _swagger_style(parameter), self._schemas.convert(own, file)

    # Bodies.

    def _body(
        self, given: list[tuple[Mapping[str, Any], str]], operation: Mapping[str, Any], file: str
    ) -> tuple[Body | None, Any]:
        if self._is_swagger:
            return self._swagger_body(given, operation)
        request_body, file = self._document.follow(operation.get("requestBody"), file)
        if request_body is None:
            return None, None
        content = as_object(as_object(request_body).get("content"))
        if not content:
            raise Unusable("its body has no content type")
        media, kind = _choose_media(content, self._has_files(content, file))
        inner, file = self._document.follow_object(content[media], file)
        body, schema = self._make_body(media, kind, inner.get("schema", {}), inner.get("encoding"), file)
        body = replace(body, required=parse_flag(request_body.get("required")) is True)
        return body, _describe(schema, request_body.get("description"), BODY, BODY)

    def _swagger_body(
        self, given: list[tuple[Mapping[str, Any], str]], operation: Mapping[str, Any]
    ) -> tuple[Body | None, Any]:
        consumes = operation.get("consumes", self._document.data.get("consumes"))
        medias = list(map(str, as_list(consumes)))
        whole = next((each for each in given if each[0]["in"] == "body"), None)
        fields = [each for each in given if each[0]["in"] == "formData"]
        if whole is not None:
            parameter, file = whole
            media, kind = _choose_media(dict.fromkeys(medias or ["application/json"], None), files=False)
            body, schema = self._make_body(media, kind, parameter.get("schema", {}), None, file)
            body = replace(body, required=parse_flag(parameter.get("required")) is True)
            return body, _describe(schema, parameter.get("description"), BODY, BODY)
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
                schema, made_fields[name] = self._file_schema(), Field(file=True)
            else:
                style, schema = self._swagger_parameter(parameter, file)
                made_fields[name] = Field(style)
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
            return Body(sent, kind), self._schemas.convert(schema, file)
        if kind == "text":
            text = {"type": "string", "description": f"Text of type {media.partition(';')[0]}."}
            return Body(media.replace("*", "plain"), kind), text
        if kind == "binary":
            return Body("application/octet-stream" if "*" in media else media, kind), dict(_BASE64)
        return self._form(media, kind, schema, encoding, file)

    def _form(self, media: str, kind: BodyKind, schema: Any, encoding: Any, file: str) -> tuple[Body, Any]:
        """Read a body of named fields. Its properties may be spread over `allOf`."""
        table = _Properties(self._document, schema, file)
        encodings = as_object(encoding)
        fields: dict[str, Field] = {}
        properties: dict[str, Any] = {}
        for name, (given, where) in table.properties.items():
            target, target_file = self._document.follow_object(given, where)
            if target.get("readOnly") is True:
                continue
            own = as_object(encodings.get(name))
            is_list, is_file = self._is_file(target, target_file, kind)
            fields[name] = Field(_field_style(own, target, kind), _content_type(own), is_file)
            properties[name] = self._schemas.convert(given, where)
            if is_file:
                single = self._file_schema()
                properties[name] = {"type": "array", "items": single} if is_list else single
                properties[name] = _describe(properties[name], target.get("description"), name, name)
        if not properties:
            return Body(media, kind, fields=fields), self._schemas.convert(schema, file)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [name for name in table.required if name in properties]:
            made["required"] = list(dict.fromkeys(required))
        if table.closed:
            made["additionalProperties"] = False
        return Body(media, kind, fields=fields), made

    def _has_files(self, content: Mapping[str, Any], file: str) -> bool:
        """True if a multipart form has files in it."""
        for media, inner in content.items():
            if _kind(str(media).lower()) == "multipart" and isinstance(inner, Mapping):
                table = _Properties(self._document, inner.get("schema", {}), file)
                for given, where in table.properties.values():
                    if self._is_file(*self._document.follow_object(given, where), "multipart")[1]:
                        return True
        return False

    def _is_file(self, schema: Mapping[str, Any], file: str, kind: BodyKind) -> tuple[bool, bool]:
        """Return whether a field is a list, and whether it is a file or a list of files."""
        given = schema.get("type")
        is_list = given == "array" or (isinstance(given, list) and "array" in given)
        inner, _ = self._document.follow_object(schema.get("items") if is_list else schema, file)
        binary = inner.get("format") == "binary" or inner.get("type") == "file"
        encoded = "contentEncoding" in inner
        is_file = binary or ("contentMediaType" in inner and not encoded)
        return is_list, kind == "multipart" and is_file

    def _file_schema(self) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self._schemas.add(_FILE, _FILE_SCHEMA)}"}

    # The rest.

    def _security(self, operation: Mapping[str, Any]) -> tuple[Requirement, ...]:
        given = operation.get("security", self._document.data.get("security"))
        if given is None:
            return ()
        if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
            raise Unusable("`security` is not a list of objects")
        return tuple(
            {str(name): tuple(map(str, as_list(scopes))) for name, scopes in each.items()} for each in given
        )

    def _output(self, operation: Mapping[str, Any], file: str) -> tuple[tuple[Any, str], ...]:
        """Return the schemas of the successful JSON responses, each with its file."""
        found: list[tuple[Any, str]] = []
        for status, given in as_object(operation.get("responses")).items():
            if not str(status).startswith("2"):
                continue
            try:
                response, where = self._document.follow_object(given, file)
            except Unusable:
                continue
            if self._is_swagger:
                if isinstance(response.get("schema"), Mapping):
                    found.append((response["schema"], where))
                continue
            for media, inner in as_object(response.get("content")).items():
                if _is_json(str(media).lower()) and "schema" in as_object(inner):
                    found.append((inner["schema"], where))
                    break
        return tuple(found)


class _Properties:
    """The properties of an object schema, including those of its `allOf`."""

    def __init__(self, document: Document, schema: Any, file: str) -> None:
        self.properties: dict[str, tuple[Any, str]] = {}
        self.required: list[str] = []
        for node, where in iter_all_of(document, schema, file):
            table = as_object(node.get("properties"))
            self.properties.update({str(name): (each, where) for name, each in table.items()})
            self.required += [each for each in as_list(node.get("required")) if isinstance(each, str)]
        self.closed = document.follow_object(schema, file)[0].get("additionalProperties") is False


# --- paths ---


def _check_path(path: str) -> tuple[str, str]:
    """Return a path without its query, and the query. `Unusable` if it cannot be sent as it is."""
    plain, _, query = path.partition("?")
    if "#" not in plain:  # encode spaces and non-ASCII characters, except in the names of parameters
        plain = _PIECE.sub(lambda found: found[1] or quote(found[0], safe=_SAFE), plain)
    literal = _TEMPLATE.sub("x", plain)
    if not plain.startswith("/") or plain.startswith("//") or not _LITERAL.fullmatch(literal):
        raise Unusable(
            "its path has characters that are not allowed in a path, or does not begin with one slash"
        )
    if climbs(literal) or not _QUERY.fullmatch(query):
        raise Unusable("its path has . or .. as a segment, or a query that cannot be sent")
    return plain, query


def _make_name(method: str, path: str) -> str:
    """Make a name of method and path: `GET /pets/{id}` is `get_pets_by_id`."""
    segments = [_TEMPLATE.sub(lambda found: f"by_{found[1]}", segment) for segment in path.split("/")]
    return "_".join([method, *filter(None, (slug(segment) for segment in segments))])


def _own_server(operation: Mapping[str, Any], item: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """Return the URL of the operation's own server; "" if it has none or uses the document's first server."""
    urls = _server_urls(operation) or _server_urls(item)
    default = _server_urls(document)[:1]  # base_url replaces only the first one
    return "" if not urls or set(urls) & set(default) else urls[0]


def _server_urls(owner: Mapping[str, Any]) -> list[str]:
    urls = [as_object(each).get("url") for each in as_list(owner.get("servers"))]
    return [url for url in urls if isinstance(url, str)]


# --- texts ---


def _write_description(operation: Mapping[str, Any], label: str) -> str:
    summary, long = tidy(operation.get("summary"), LONGEST_TEXT), tidy(operation.get("description"), 1_500)
    prefix = "Deprecated. " if operation.get("deprecated") is True else ""
    text = long if not summary or long.startswith(summary) else "\n\n".join(filter(None, (summary, long)))
    label = tidy(label, LONGEST_TEXT)
    return f"{prefix}{text}\n\n{label}" if text else f"{prefix}{label}"


def _describe(schema: Any, description: Any, argument: str, name: str) -> Any:
    """Add the description of a parameter to its schema, and its real name if the argument has a different one."""
    text = tidy(description, 2 * LONGEST_TEXT)
    if argument != name and not argument.endswith(f"_{name}"):
        text = f"{text} Sent as {tidy(name, 80)}.".strip()
    if not text or not isinstance(schema, Mapping):
        return schema
    return {**schema, "description": text}


def _name_arguments(found: Sequence[tuple[str, str]], has_body: bool) -> list[str]:
    """Choose the argument names of parameters: the parameter's own name if it is valid and unique."""
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
    """Return the style of an OpenAPI 3 parameter. `Unusable` if the style is not allowed in its place."""
    place = parameter["in"]
    given = parameter.get("style") or _STYLES[place][0]
    if given not in _STYLES[place]:
        raise Unusable(
            f"the {place} parameter {parameter['name'][:80]!r} has an unsupported style, {str(given)[:40]!r}"
        )
    return _make_style(given, parameter)


def _make_style(given: str, owner: Mapping[str, Any]) -> Style:
    explode = parse_flag(owner.get("explode"))
    reserved = parse_flag(owner.get("allowReserved")) is True
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
            f"the parameter {parameter['name'][:80]!r} has an unsupported collectionFormat, {str(form)[:40]!r}"
        )
    return Style(kind, explode=False, separator=_SEPARATORS[form])


def _field_style(encoding: Mapping[str, Any], schema: Mapping[str, Any], kind: BodyKind) -> Style:
    """Return how a field of a form is written: by its `encoding`, else objects as JSON and lists repeated."""
    given = encoding.get("style")
    if isinstance(given, str) and given in _STYLES["query"]:
        return _make_style(given, encoding)
    if "explode" in encoding or "allowReserved" in encoding:
        return _make_style("form", encoding)
    if _is_json(_content_type(encoding)):
        return Style("json")
    nested = schema.get("type") == "object" or "properties" in schema
    return Style("json") if nested or (kind == "multipart" and "allOf" in schema) else Style()


def _content_type(encoding: Mapping[str, Any]) -> str:
    given = encoding.get("contentType")
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
    """Return the kind of body of a content type; None if such a body is not supported."""
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
    """Choose the content type that is easiest for a model. A multipart form comes first if it has files."""
    medias = [each for each in map(str, content) if each.isascii() and each.isprintable()]
    kinds = [(media, kind) for media in medias if (kind := _kind(media.lower())) is not None]
    if not kinds:
        raise Unusable(f"its body is of type {', '.join(map(str, content))[:100]}, which is not supported")
    order = ("multipart", *_ORDER) if files else _ORDER
    exact = [each for each in kinds if "*" not in each[0]] or kinds
    return min(exact, key=lambda each: order.index(each[1]))
