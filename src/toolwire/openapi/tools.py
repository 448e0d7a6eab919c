"""Selects operations by name, path, method and tag, and builds their tools.

A tool lists a schema that may be shortened, and validates its arguments against the complete one. That is compiled
at the first call: of thousands of operations only a few are ever called, and all of them share the definitions.
"""

import fnmatch
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolwire.errors import ToolDefinitionError, UsageError
from toolwire.openapi.document import Unusable
from toolwire.openapi.http import SAFE_METHODS
from toolwire.openapi.operations import METHODS, ListedOperation, Operation
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
_MANY: Final = 150  # a schema with more definitions is compiled in a thread: it takes about 0.1 s


@dataclass(frozen=True)
class Selection:
    """The selected operations: those that match `include` (all if it is empty) and do not match `exclude`.

    A pattern is a glob that ignores case: `tag:pets`, `path:/users/*` or just `/users/*`, `method:GET` or just
    `GET`, `GET /users/*`, `id:list*`. Anything else is matched against the tool name and the operation id.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            if not pattern.strip():
                raise UsageError(
                    f"include and exclude take globs such as 'GET /users/*' or 'tag:pets', got {pattern!r}"
                )

    def includes(self, operation: ListedOperation, name: str) -> bool:
        """True if an operation is selected; `name` is the name of its tool."""
        if any(_matches(pattern, operation, name) for pattern in self.exclude):
            return False
        return not self.include or any(_matches(pattern, operation, name) for pattern in self.include)

    def unused(self, listed: Sequence[tuple[ListedOperation, str]]) -> list[str]:
        """Return the patterns that match no operation: they may be misspelt."""
        patterns = (*self.include, *self.exclude)
        return [each for each in patterns if not any(_matches(each, *operation) for operation in listed)]


def _matches(pattern: str, operation: ListedOperation, name: str) -> bool:
    kind, mark, rest = pattern.partition(":")
    values = {
        "tag": operation.tags,
        "path": (operation.path,),
        "method": (operation.method,),
        "id": (operation.name,),
    }.get(kind.lower() if mark else "")
    if values is not None:
        return any(_glob(each, rest) for each in values)
    if pattern.startswith("/"):
        return _glob(operation.path, pattern)
    if pattern.lower() in METHODS:
        return pattern.lower() == operation.method
    if " /" in pattern:
        return _glob(operation.label, pattern)
    return _glob(name, pattern) or _glob(operation.name, pattern)


def _glob(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold().strip())


class Arguments:
    """The arguments of an operation: a listed schema, and validation against the complete one.

    The complete schema may have thousands of definitions and take seconds to compile. Then `validate`, which runs
    on the event loop, validates against the listed schema only, and `validate_whole` must be called in a thread.
    """

    def __init__(self, listed: dict[str, Any], operation: Operation, schemas: Schemas) -> None:
        self.json_schema = listed
        self._operation = operation
        self._schemas = schemas
        self._checked: Parameters | None = None
        self._whole: Parameters | None = None
        self.is_large = False
        """True once `validate` has found that `validate_whole` must be called too."""

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments if they are valid; `InvalidArguments` otherwise."""
        if self._checked is None:
            self.is_large = self._schemas.needs_more_than(_MANY, self._operation.uses)
            self._checked = from_json_schema(self.json_schema) if self.is_large else self._compile_whole()
        return self._checked.validate(arguments)

    def validate_whole(self, arguments: dict[str, Any]) -> None:
        """Validate arguments against the complete schema. `InvalidArguments` if they do not match."""
        if self._whole is None:
            self._whole = self._compile_whole()
        self._whole.validate(arguments)

    def _compile_whole(self) -> Parameters:
        definitions = self._schemas.definitions(self._operation.uses)
        schema = self._operation.schema
        return from_json_schema({**schema, "$defs": definitions} if definitions else schema)


class _Signature:
    """Stands in for a typed function's signature: the handler gets the arguments and the context."""

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
    return Tool(
        name=name,
        description=operation.description,
        input_schema=arguments.json_schema,
        handler=call,
        annotations=_HINTS.get(operation.method),
        search_hint=make_search_hint(name, *operation.tags, operation.description.partition("\n")[0]),
        tags=operation.tags,
        output_schema=output,
        text_mirrors_structured=True,
        repeatable=operation.method in SAFE_METHODS,
        typed=_Signature(arguments),
    )


def make_output(operation: Operation, schemas: Schemas) -> tuple[Parameters, str]:
    """Compile the schema of a call's structured content: `status`, and the JSON of the response as `result`.

    Returns it with a note: why the schema of `result` was left out, or "".
    """
    properties: dict[str, Any] = {"status": {"type": "integer"}}
    made: dict[str, Any] = {"type": "object", "properties": properties, "required": ["status"]}
    note = ""
    if operation.output:
        try:
            converted = [schemas.convert(schema, file) for schema, file in operation.output]
            definitions = schemas.definitions(schemas.uses_of(*converted))
            variants = list({id(shared): shared for shared in map(schemas.share, converted)}.values())
            result = variants[0] if len(variants) == 1 else {"anyOf": variants}
            whole = {**made, "properties": {**properties, "result": result}, "$defs": definitions}
            return from_json_schema(whole), ""
        except (Unusable, ToolDefinitionError) as reason:
            note = f"its output schema is left out: {reason}"
    properties["result"] = {}
    return from_json_schema(made), note
