"""A tool: a name, a schema of its arguments, and the function that is called.

`Tool` is the official `SdkMcpTool` with more fields. It is made from a typed function (`tool(fn)`), in the official
way (`tool(name, description, schema)`), or by hand for a schema known only at run time. Everything that can be
decided when it is made is decided then: the schema is checked, the definition for `tools/list` is built.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import FunctionType
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from toolwire._support.tasks import is_async
from toolwire._support.user_code import warn_at_user_line
from toolwire._support.words import closest
from toolwire.errors import ToolDefinitionError, ToolwireWarning
from toolwire.tools.context import Context
from toolwire.tools.names import find_name_problem, is_dropped_by_cli, wire_name
from toolwire.tools.results.to_json import BadResult
from toolwire.tools.schema.arguments import InvalidArguments, Parameters

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ToolPolicy = Literal["always_allow", "always_ask", "always_deny"]
_TYPED: Final[Any] = object()  # no schema was given: the types of the function define it
_POLICIES: Final = ("always_allow", "always_ask", "always_deny")
_HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
_META: Final = {
    "always_load": "anthropic/alwaysLoad",
    "search_hint": "anthropic/searchHint",
    "max_result_size_chars": "anthropic/maxResultSizeChars",
    "requires_user_interaction": "anthropic/requiresUserInteraction",
}


@dataclass
class SdkMcpTool(Generic[T]):
    """One tool. The first five fields are the official ones, as they were given.

    A handler made with a schema gets one dict of arguments (and a `Context` if it has a second parameter); a typed
    function gets its own parameters. Both may be sync (a worker thread runs them) or async.
    """

    name: str
    description: str
    input_schema: type[T] | dict[str, Any]
    handler: Callable[..., Any]
    annotations: Any = None
    """MCP annotations: `ToolAnnotations`, or a dict such as `{"readOnlyHint": True}`."""
    title: str | None = None
    """A name to show to users."""
    output_schema: Any = None
    """A type or JSON schema: the result then is structured content that fits it."""
    always_load: bool | None = None
    """True: the model sees the tool at once, even if the CLI would have it search for tools first."""
    search_hint: str | None = None
    """Words by which the model finds the tool when it searches."""
    max_result_size_chars: int | None = None
    """Longest result that the CLI gives to the model whole (default 50,000, at most 500,000)."""
    requires_user_interaction: bool | None = None
    """True: ask for permission even if a rule allows the tool."""
    timeout: float | None = None
    """Seconds that a call may take."""
    inline: bool = False
    """True: run a quick sync function on the event loop instead of in a thread."""
    policy: ToolPolicy | None = None
    """Permission policy of the server, such as `always_ask` or `always_deny`."""
    meta: dict[str, Any] | None = None
    """More `_meta` of the definition."""
    repeatable: bool = True
    """True if a stateless client may run a call again from its start, with the user's answers."""
    text_mirrors_structured: bool = False
    """True: structured content holds all that the text does, so nothing is lost if only that is shown."""
    tags: Sequence[str] = ()
    """Groups that the tool belongs to, for choosing and finding tools."""
    typed: Any = field(default=None, repr=False, compare=False)
    """The signature of a typed function; None for a handler that takes a dict."""

    def __post_init__(self) -> None:
        if (problem := find_name_problem(self.name)) is not None:
            if is_dropped_by_cli(self.name):
                raise ToolDefinitionError(f"tool {self.name!r}: {problem}")
            warn_at_user_line(
                f"tool {self.name!r}: {problem}. The CLI calls it {wire_name(self.name)!r}.", ToolwireWarning
            )
        if not callable(self.handler):
            raise ToolDefinitionError(
                f"tool {self.name!r}: the handler must be callable, got {self.handler!r}"
            )
        self.description = self.description or ""  # the official class takes None
        if not isinstance(self.description, str):
            raise ToolDefinitionError(f"tool {self.name!r}: the description must be a string")
        if self.policy is not None and self.policy not in _POLICIES:
            raise ToolDefinitionError(f"tool {self.name!r}: policy must be one of {', '.join(_POLICIES)}")
        if self.timeout is not None and not self.timeout > 0:
            raise ToolDefinitionError(
                f"tool {self.name!r}: timeout must be over 0 seconds, got {self.timeout!r}"
            )
        if isinstance(self.tags, str) or not all(isinstance(each, str) for each in self.tags):
            raise ToolDefinitionError(
                f"tool {self.name!r}: tags must be a list of strings, got {self.tags!r}"
            )
        if inspect.isasyncgenfunction(self.handler) or inspect.isgeneratorfunction(self.handler):
            raise ToolDefinitionError(
                f"tool {self.name!r}: a generator has no single result; return a list instead"
            )
        self.parameters: Parameters = _compile_parameters(self)
        self.is_async = is_async(self.handler)
        self.threaded = not self.is_async and not self.inline
        """True if a worker thread runs it."""
        self.output = _compile_output(self)
        self._pass_context = self.typed is None and _takes_context(self.handler)
        self.takes_context = self._pass_context or (
            self.typed is not None and self.typed.context_parameter is not None
        )
        self._takes_keywords = self.typed is not None and not (self.takes_context or self.typed.positional)
        self.definition: dict[str, Any] = self._define()
        """Its entry in `tools/list`. Built once; do not change it."""
        self._made_of = self._list_official_fields()

    def _list_official_fields(self) -> tuple[Any, ...]:
        return self.name, self.description, self.input_schema, self.handler, self.annotations

    def refresh(self) -> "SdkMcpTool[T]":
        """Return this tool, or a new one if an official field was changed after it was made.

        Tracing libraries do that, to call a handler of their own.
        """
        now = self._list_official_fields()
        same = all(one is other for one, other in zip(now, self._made_of, strict=True))
        return self if same else replace(self)

    @property
    def label(self) -> str:
        """Its kind and name, for errors."""
        return f"Tool {self.name!r}"

    @property
    def json_schema(self) -> dict[str, Any]:
        """The input schema that clients get."""
        return self.parameters.json_schema

    def invoke(self, values: dict[str, Any], context: Context[Any] | None) -> Any:
        """Call the handler with validated values. Returns its result, or an awaitable of it.

        The context may be None for a handler that does not take it.
        """
        if self._takes_keywords:  # as most functions do
            return self.handler(**values)
        if self.typed is not None:
            args, kwargs = self.typed.arguments_for(values, context)
            return self.handler(*args, **kwargs)
        return self.handler(values, context) if self._pass_context else self.handler(values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly."""
        return self.handler(*args, **kwargs)

    def _define(self) -> dict[str, Any]:
        definition: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.title is not None:
            definition["title"] = self.title
        definition["inputSchema"] = self.json_schema
        if self.output is not None:
            definition["outputSchema"] = self.output.json_schema
        hints = _annotations(self.annotations)
        meta = dict(self.meta or {})
        if (size := hints.pop("maxResultSizeChars", None)) is not None:  # where the official SDK puts it
            meta[_META["max_result_size_chars"]] = size
        meta |= {key: value for name, key in _META.items() if (value := getattr(self, name)) is not None}
        if self.tags:
            from toolwire.tools.search import TAGS  # noqa: PLC0415 - few tools have tags

            meta[TAGS] = list(self.tags)
        if hints:
            definition["annotations"] = hints
        if meta:
            definition["_meta"] = meta
        return definition


Tool = SdkMcpTool


def _compile_parameters(tool: "Tool[Any]") -> Parameters:
    if tool.typed is not None:
        parameters: Parameters = tool.typed.parameters
        return parameters
    from toolwire.tools.schema.json_schema import from_official, read_other_form  # noqa: PLC0415 - not for typed functions

    try:
        return from_official(tool.input_schema)
    except ToolDefinitionError as error:
        problem = ToolDefinitionError(f"tool {tool.name!r}: {error}")
        if (other := read_other_form(tool.input_schema)) is None:
            raise problem from error
        schema, note = other
        try:
            parameters = from_official(schema)
        except ToolDefinitionError:
            raise problem from error
        warn_at_user_line(f"the input_schema of tool {tool.name!r}: {note}.", ToolwireWarning)
        return parameters


def _takes_context(handler: Any) -> bool:
    """True if a handler that takes a dict also takes the context."""
    # The usual case, a function that neither wraps another nor has a signature or defaults set, is decided by its
    # code: to inspect the signatures of ten thousand tools would take half a second.
    if type(handler) is FunctionType and not vars(handler) and handler.__defaults__ is None:
        return handler.__code__.co_argcount > 1
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (
        places[1].default is inspect.Parameter.empty or "Context" in str(places[1].annotation)
    )


def _annotations(given: Any) -> dict[str, Any]:
    """Convert annotations, a dict or a Pydantic model, to MCP's spelling."""
    if given is None:
        return {}
    if hasattr(given, "model_dump"):
        return dict(given.model_dump(by_alias=True, exclude_none=True, mode="json"))
    if isinstance(given, Mapping):
        return {_HINTS.get(key) or key: value for key, value in given.items() if value is not None}
    raise ToolDefinitionError(f"annotations must be ToolAnnotations or a dict, got {type(given).__name__}")


def _compile_output(tool: "Tool[Any]") -> "_TypedOutput | _SchemaOutput | None":
    given = tool.output_schema
    if given is None or given is False:
        return None
    if given is True:
        if tool.typed is None or tool.typed.output_schema is None:
            raise ToolDefinitionError(
                f"tool {tool.name!r}: structured output needs a return annotation that is an object: a dataclass, "
                "TypedDict, Pydantic model or dict[str, ...]"
            )
        return _TypedOutput(tool.typed.output_schema, tool.typed.output_adapter)
    if isinstance(given, dict):
        from toolwire.tools.schema.json_schema import from_json_schema  # noqa: PLC0415 - compiles schemas, needed only here

        return _SchemaOutput(from_json_schema(given))
    from toolwire.tools.schema.pydantic_types import output_schema  # noqa: PLC0415 - loads Pydantic

    adapter, schema = output_schema(given)
    return _TypedOutput(schema, adapter)


class _TypedOutput:
    """Structured output of a Python type."""

    def __init__(self, json_schema: dict[str, Any], adapter: Any) -> None:
        self.json_schema = json_schema
        self._adapter = adapter

    def dump(self, value: Any) -> dict[str, Any]:
        try:
            dumped = self._adapter.dump_python(
                self._adapter.validate_python(value), mode="json", by_alias=True
            )
        except ValueError as error:
            raise BadResult(f"the result does not fit the output schema: {error}", type(value)) from error
        if not isinstance(dumped, dict):
            raise BadResult("structured output must be an object", type(value))
        return dumped


class _SchemaOutput:
    """Structured output by a JSON schema."""

    def __init__(self, parameters: Parameters) -> None:
        self.json_schema = parameters.json_schema
        self._parameters = parameters

    def dump(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadResult("structured output must be a dict", type(value))
        try:
            return self._parameters.validate(value)
        except InvalidArguments as error:
            raise BadResult(f"the result does not fit the output schema: {error}", type(value)) from error


class ToolSettings(TypedDict, total=False):
    """The settings of a tool that is made from a typed function: hints for the client, and fields of `Tool`."""

    title: str | None
    description: str | None
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    structured: bool | None
    output_schema: Any
    always_load: bool | None
    search_hint: str | None
    max_result_size_chars: int | None
    requires_user_interaction: bool | None
    timeout: float | None
    inline: bool
    policy: ToolPolicy | None
    annotations: Any
    meta: dict[str, Any] | None
    repeatable: bool
    tags: Sequence[str]
    text_mirrors_structured: bool


def from_function(
    function: Callable[..., Any], *, name: str | None = None, **settings: Unpack[ToolSettings]
) -> "Tool[Any]":
    """Make a tool from a typed function. `settings` are fields of `Tool`, or hints such as `read_only`."""
    from toolwire.tools.schema.signature import signature_of  # noqa: PLC0415 - loads Pydantic

    given: dict[str, Any] = dict(settings)
    if isinstance(function, SdkMcpTool):
        changes: dict[str, Any] = _check_settings(given, function.annotations)
        return replace(function, **({**changes, "name": name} if name else changes))
    if not callable(function):
        raise ToolDefinitionError(f"a tool must be a function, got {function!r}")
    own = name or getattr(function, "__name__", None) or type(function).__name__
    if own == "<lambda>":
        raise ToolDefinitionError(
            "a lambda has no name that a model could call: pass one, as in server.tool(function, name='double')"
        )
    signature = signature_of(function, context_type=Context, name=own)
    known = _check_settings(given, None)
    description = known.pop("description", None)
    return Tool(
        name=own,
        description=signature.description if description is None else description,
        input_schema=signature.parameters.json_schema,
        handler=function,
        typed=signature,
        **known,
    )


def _check_settings(given: dict[str, Any], annotations: Any) -> dict[str, Any]:
    """Move hints into the annotations; `ToolDefinitionError` names an unknown setting."""
    settings = {key: value for key, value in given.items() if value is not None}
    hints = {wire: settings.pop(key) for key, wire in _HINTS.items() if key in settings}
    if settings.pop("structured", None):
        settings.setdefault("output_schema", True)
    if hints or annotations is not None:
        settings["annotations"] = {
            **_annotations(annotations),
            **_annotations(settings.get("annotations")),
            **hints,
        }
    unknown = settings.keys() - {each.name for each in fields(SdkMcpTool)}
    if unknown:
        known = ToolSettings.__annotations__
        names = [
            f"{name} (did you mean {near}?)" if (near := closest(name, known)) else name
            for name in sorted(unknown)
        ]
        raise ToolDefinitionError(f"a tool has no setting {', '.join(names)}")
    return settings


@overload
def tool(function: F, /) -> "Tool[Any]": ...
@overload
def tool(
    name: str, description: str, input_schema: type | dict[str, Any], annotations: Any = None, **settings: Any
) -> Callable[[Callable[..., Awaitable[Any] | Any]], "Tool[Any]"]: ...
@overload
def tool(
    name: str | None = None, **settings: Unpack[ToolSettings]
) -> Callable[[Callable[..., Any]], "Tool[Any]"]: ...
def tool(
    name: Any = None,
    description: Any = None,
    input_schema: Any = _TYPED,
    annotations: Any = None,
    **settings: Any,
) -> Any:
    """Make a tool from a function.

    - `@tool` on a typed function: schema and descriptions come from its signature and docstring.
    - `@tool(name="...", read_only=True, ...)`: the same, with settings.
    - `@tool("add", "Add two numbers", {"a": float, "b": float})`: the official form; the function gets one dict.

    The result can still be called like the function.
    """
    if callable(name) and not isinstance(name, str):
        return from_function(name)
    if annotations is not None:
        settings["annotations"] = annotations

    def decorate(function: Callable[..., Any]) -> "Tool[Any]":
        if input_schema is _TYPED:
            return from_function(function, name=name, description=description, **settings)
        about = inspect.getdoc(function) if description is None else description
        schema = {} if input_schema is None else input_schema
        return Tool(name, about or "", schema, function, **_check_settings(settings, None))

    return decorate
