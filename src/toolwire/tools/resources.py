"""Resources: typed functions that return the contents of an address, or of all addresses of a template.

Owns their entries in the list, the search for the resource of an address, and the conversion of a function's result
to contents. Calls no function, and must not know connections.
"""

import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypedDict

from toolwire._support.words import closest
from toolwire.errors import ToolDefinitionError
from toolwire.tools.completion import Source
from toolwire.tools.exposed_function import ExposedFunction, check_settings, function_name
from toolwire.tools.paging import Pages
from toolwire.tools.results.adapters import to_block
from toolwire.tools.results.blocks import check_block
from toolwire.tools.results.content import Audio, Image, Resource, Text
from toolwire.tools.results.to_json import BadResult, clean, text
from toolwire.tools.schema.arguments import InvalidArguments, Violation
from toolwire.tools.uri_template import LONGEST, UriTemplate, check_uri

_BYTES = (bytes, bytearray, memoryview)


class ResourceSettings(TypedDict, total=False):
    """The settings of a resource."""

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    annotations: Any
    complete: Mapping[str, Source] | None
    icons: list[Any] | None
    meta: dict[str, Any] | None
    timeout: float | None
    inline: bool


@dataclass
class ServedResource(ExposedFunction):
    """A function that is served under an address, or under a template such as `res://{id}`."""

    uri: str = ""
    mime_type: str | None = None
    size: int | None = None
    """Size in bytes, if known beforehand."""
    annotations: Any = None
    """MCP annotations: `audience`, `priority`, `lastModified`."""

    def __post_init__(self) -> None:
        self.label = f"Resource {self.uri!r}"
        try:
            self.name = self.name or function_name(self.function)
            check_uri(self.uri)
            self.template = UriTemplate(self.uri) if "{" in self.uri or "}" in self.uri else None
        except ToolDefinitionError as error:
            raise self.error(str(error)) from None
        self.inspect_function()
        self._check_parameters()
        self.definition = self._define()
        """Its entry in the list. Built once; do not change it."""

    def _check_parameters(self) -> None:
        """Check that template and function have the same parameters."""
        names = self.template.names if self.template is not None else ()
        for name in names:
            if name not in self.arguments:
                raise self.error(
                    f"the template names {name!r}, which the function does not take: "
                    f"add a parameter {name!r}, or take {{{name}}} out"
                )
        for name in self.arguments:
            if name not in names and name in self.required:
                raise self.error(
                    f"the function needs {name!r}, which the address does not give: "
                    f"put {{{name}}} into the address, or give the parameter a default"
                )

    def _define(self) -> dict[str, Any]:
        # A listed resource has the fields of a resource link, so the same checks apply.
        try:
            link = check_block(
                {
                    "type": "resource_link",
                    "uri": self.uri,
                    "name": self.name,
                    "title": self.title,
                    "description": self.description or None,
                    "mimeType": self.mime_type,
                    "size": self.size,
                    "annotations": _as_dict(self.annotations),
                },
                "the definition",
            )
        except BadResult as error:
            raise self.error(str(error)) from error
        del link["type"]
        if self.template is not None:
            if self.size is not None:
                raise self.error("size is for a single resource, not for a template")
            link = {"uriTemplate": link.pop("uri"), **link}
        return link | self.extras()

    def contents(self, uri: str, value: Any) -> dict[str, Any]:
        """Convert what the function returned to a `ReadResourceResult`; `BadResult` if that is not possible."""
        if isinstance(value, list | tuple) and any(isinstance(each, Resource) for each in value):
            if not all(isinstance(each, Resource) for each in value):
                raise BadResult(
                    "a list must have only Resource objects or only data: make each part a Resource", list
                )
            return {"contents": [_make_content(uri, each, None) for each in value]}
        return {"contents": [_make_content(uri, value, self.mime_type)]}


class Resources:
    """The resources of one server, found by address."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._fixed: dict[str, ServedResource] = {}
        self._templates: dict[str, ServedResource] = {}
        self._closest: tuple[tuple[UriTemplate, ServedResource], ...] = ()
        self.fixed: Mapping[str, ServedResource] = MappingProxyType(self._fixed)
        self.templates: Mapping[str, ServedResource] = MappingProxyType(self._templates)
        self.pages = Pages("resources", self._fixed, lock)
        self.template_pages = Pages("resourceTemplates", self._templates, lock)
        self.ever = False
        """True once there was a resource. Until then clients do not know that the server has resources."""

    def add(self, resource: ServedResource, *, replace: bool) -> None:
        """Add a resource; `ToolDefinitionError` if its address or an equivalent template is taken."""
        with self._lock:
            holder = self._find_holder(resource)
            if holder is not None and not (replace and holder == resource.uri):
                if holder == resource.uri:
                    raise resource.error("the server already has it; replace=True replaces it")
                raise resource.error(f"the server already has {holder!r}, which matches the same addresses")
            table = self._fixed if resource.template is None else self._templates
            table[resource.uri] = resource
            self._update()
            self.ever = True

    def remove(self, uri: str) -> ServedResource:
        """Remove a resource, by its address or template. KeyError if there is no such resource."""
        with self._lock:
            for table in (self._fixed, self._templates):
                if uri in table:
                    removed = table.pop(uri)
                    self._update()
                    return removed
        raise KeyError(f"Resource not found: {uri}{self.hint(uri)}")

    def find(self, uri: str) -> tuple[ServedResource, dict[str, str]] | None:
        """Return the resource of an address, and the values in the address; None if no resource has it.

        A resource with exactly that address comes first, then the template with the most literal characters.
        `InvalidArguments` if the address is too long, or all templates that match it refuse a value in it.
        """
        fixed = self._fixed.get(uri)
        if fixed is not None:
            return fixed, {}
        if len(uri) > LONGEST:
            raise InvalidArguments([Violation("uri", f"Must have at most {LONGEST} characters")])
        refused: InvalidArguments | None = None
        for template, resource in self._closest:
            try:
                values = template.match(uri)
            except InvalidArguments as error:
                refused = refused or error
                continue
            if values is not None:
                return resource, values
        if refused is not None:
            raise refused
        return None

    def hint(self, uri: str) -> str:
        """Suggest the closest address, for an error about an unknown one."""
        near = closest(uri, [*self._fixed, *self._templates])
        return f". Did you mean {near!r}?" if near else ""

    def _find_holder(self, resource: ServedResource) -> str | None:
        if resource.template is None:
            return resource.uri if resource.uri in self._fixed else None
        shape = resource.template.shape
        return next((each.uri for template, each in self._closest if template.shape == shape), None)

    def _update(self) -> None:
        templates = [(each.template, each) for each in self._templates.values() if each.template is not None]
        self._closest = tuple(sorted(templates, key=lambda pair: (-pair[0].literal, pair[0].wide)))
        self.pages.drop()
        self.template_pages.drop()


def make_resource(uri: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> ServedResource:
    """Make a resource from an address and a function."""
    return ServedResource(function, uri=uri, **check_settings(ServedResource, settings))


def _make_content(uri: str, value: Any, mime_type: str | None) -> dict[str, Any]:
    uri = clean(uri)
    if isinstance(value, Resource):
        block = to_block(value) or {}
        meta = {"_meta": block["_meta"]} if "_meta" in block else {}
        inner: dict[str, Any] = block["resource"]
        return {**inner, **meta}
    if value is None or isinstance(value, str | Text):
        content = value.text if isinstance(value, Text) else str.__str__(value or "")
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": clean(content)}
    if isinstance(value, Image | Audio):
        mime_type, value = mime_type or value.mime_type, value.data
    if isinstance(value, _BYTES):
        blob = b64encode(value).decode()
        return {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}
    return {"uri": uri, "mimeType": mime_type or "application/json", "text": text(value)}


def _as_dict(given: Any) -> Any:
    """Return annotations as a dict, from a Pydantic model or a dict."""
    return given.model_dump(by_alias=True, exclude_none=True) if hasattr(given, "model_dump") else given
