"""Chooses operations by name, path, method and tag, and makes tools of them.

A tool lists a schema that may be shortened, and checks its arguments by the whole one, which is compiled at the
first call: of thousands of operations few are ever called, and the definitions are shared by all of them.
"""

import fnmatch
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolwire.errors import ToolDefinitionError, UsageError
from toolwire.openapi.document import Unusable
from toolwire.openapi.http import SAFE_METHODS
from toolwire.openapi.operations import METHODS, Listed, Operation
from toolwire.openapi.schemas import Schemas
from toolwire.tools.context import Context
from toolwire.tools.schema.arguments import Parameters
from toolwire.tools.schema.json_schema import from_json_schema
from toolwire.tools.search import make_search_hint
from toolwire.tools.tool import Tool

Call = Callable[[dict[str, Any], Context[Any]], Awaitable[dict[str, Any]]]

_HINTS: Final[dict[str, dict[str, bool]]] = {
    "GET": {"readOnlyHint": True},
    "HEAD": {"readOnlyHint": True},
    "OPTIONS": {"readOnlyHint": True},
    "PUT": {"idempotentHint": True},
    "DELETE": {"destructiveHint": True, "idempotentHint": True},
}
_KINDS: Final = ("tag", "path", "method", "id")
_MANY: Final = 150  # definitions that are compiled in a thread: about a tenth of a second


@dataclass(frozen=True)
class Selection:
    """The operations that are wanted: those of `include` (all without one) that are not of `exclude`.

    A pattern is a glob, whatever the case: `tag:pets`, `path:/users/*` or just `/users/*`, `method:GET` or just
    `GET`, `GET /users/*`, `id:list*`, and anything else is the name of a tool or an operation id.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            if not pattern.strip():
                raise UsageError(
                    f"include and exclude take globs such as 'GET /users/*' or 'tag:pets', got {pattern!r}"
                )

    def wants(self, operation: Listed, name: str) -> bool:
        """True if an operation is wanted; `name` is that of its tool."""
        if any(_fits(pattern, operation, name) for pattern in self.exclude):
            return False
        return not self.include or any(_fits(pattern, operation, name) for pattern in self.include)

    def unused(self, listed: Sequence[tuple[Listed, str]]) -> list[str]:
        """Return the patterns that fit no operation: they may be misspelt."""
        patterns = (*self.include, *self.exclude)
        return [each for each in patterns if not any(_fits(each, *operation) for operation in listed)]


def _fits(pattern: str, operation: Listed, name: str) -> bool:
    kind, mark, rest = pattern.partition(":")
    if mark and kind.lower() in _KINDS:
        values = {
            "tag": operation.tags,
            "path": (operation.path,),
            "method": (operation.method,),
            "id": (operation.name,),
        }[kind.lower()]
        return any(_match(each, rest) for each in values)
    if pattern.startswith("/"):
        return _match(operation.path, pattern)
    if pattern.lower() in METHODS:
        return pattern.lower() == operation.method
    if " /" in pattern:
        return _match(operation.label, pattern)
    return _match(name, pattern) or _match(operation.name, pattern)


def _match(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold().strip())


class Arguments:
    """The arguments of an operation: a listed schema, and validation by the whole one.

    The whole one may have thousands of definitions, and take seconds to compile: then `validate`, which runs on the
    event loop, checks by the listed schema, and `validate_whole` is for a thread.
    """

    def __init__(self, listed: dict[str, Any], operation: Operation, schemas: Schemas) -> None:
        self.json_schema = listed
        self._operation = operation
        self._schemas = schemas
        self._checked: Parameters | None = None
        self._whole: Parameters | None = None
        self.is_large = False
        """True once `validate` has found that there is more to check."""

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments if they fit; `InvalidArguments` otherwise."""
        if self._checked is None:
            self.is_large = self._schemas.has_many(self._operation.uses, _MANY)
            self._checked = from_json_schema(self.json_schema) if self.is_large else self._compile_whole()
        return self._checked.validate(arguments)

    def validate_whole(self, arguments: dict[str, Any]) -> None:
        """Check arguments by the whole schema. `InvalidArguments` if they do not fit."""
        if self._whole is None:
            self._whole = self._compile_whole()
        self._whole.validate(arguments)

    def _compile_whole(self) -> Parameters:
        definitions = self._schemas.definitions(self._operation.uses)
        schema = self._operation.schema
        return from_json_schema({**schema, "$defs": definitions} if definitions else schema)


class _Signature:
    """Takes the place of a typed function's signature: the handler gets the arguments and the context."""

    context_parameter = "context"
    output_schema = None

    def __init__(self, parameters: Arguments) -> None:
        self.parameters = parameters

    def arguments_for(self, values: dict[str, Any], context: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (values, context), {}


def build_tool(
    operation: Operation,
    name: str,
    arguments: Arguments,
    call: Call,
    output: dict[str, Any] | None = None,
) -> Tool[Any]:
    """Build the tool of an operation."""

    async def handler(values: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        return await call(values, context)

    return Tool(
        name=name,
        description=operation.description,
        input_schema=arguments.json_schema,
        handler=handler,
        annotations=_HINTS.get(operation.method),
        search_hint=make_search_hint(name, *operation.tags, operation.description.partition("\n")[0]),
        tags=operation.tags,
        output_schema=output,
        text_mirrors_structured=True,
        repeatable=operation.method in SAFE_METHODS,
        typed=_Signature(arguments),
    )


def make_output(operation: Operation, schemas: Schemas) -> tuple[Parameters, str]:
    """Compile the schema of a call's structured content: its status, and the JSON of the response as `result`."""
    properties: dict[str, Any] = {"status": {"type": "integer"}}
    made: dict[str, Any] = {"type": "object", "properties": properties, "required": ["status"]}
    note = ""
    if operation.output:
        try:
            converted = [schemas.convert(schema, file) for schema, file in operation.output]
            definitions = schemas.definitions({name for each in converted for name in each.uses})
            different = {id(shared): shared for each in converted for shared in [schemas.share(each.schema)]}
            variants = list(different.values())
            result = variants[0] if len(variants) == 1 else {"anyOf": variants}
            whole = {**made, "properties": {**properties, "result": result}, "$defs": definitions}
            return from_json_schema(whole), note
        except (Unusable, ToolDefinitionError) as reason:
            note = f"its output schema is left out: {reason}"
    properties["result"] = {}
    return from_json_schema(made), note
