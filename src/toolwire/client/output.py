"""A Python type as the shape of Claude's answer.

Owns the way from type to schema and from JSON to an instance. The CLI wants an object at the top; any other type
travels in an object with one key.
"""

import inspect
import json
import typing
from typing import Any, Final

from toolwire.errors import OptionsError, OutputValidationError

_KEY: Final = "value"


class Output:
    """What the answer must look like. Pydantic is loaded when the first one is made."""

    def __init__(self, output_type: Any) -> None:
        from pydantic import TypeAdapter  # noqa: PLC0415 - heavy

        from toolwire.tools.schema.typeddict import teach  # noqa: PLC0415

        self._name = getattr(output_type, "__name__", str(output_type))
        if isinstance(output_type, str | dict) or inspect.isroutine(output_type):
            raise OptionsError(
                f"output_type must be a type, got {output_type!r}. For a JSON schema use options.output_format.",
                "output_type",
            )
        try:
            teach(output_type)
            self._adapter: TypeAdapter[Any] = TypeAdapter(output_type)
            schema = self._adapter.json_schema()
        except Exception as error:  # whatever Pydantic or an annotation has against it
            reason = _unresolved(output_type) or error
            raise OptionsError(
                f"output_type {self._name} has no JSON schema: {reason}", "output_type"
            ) from error
        self._wrapped = schema.get("type") != "object"
        self.format: dict[str, Any] = {
            "type": "json_schema",
            "schema": _wrap(schema) if self._wrapped else schema,
        }

    def validate(self, value: Any, reply: Any) -> Any:
        """An instance of the type, or `OutputValidationError`."""
        from pydantic import ValidationError  # noqa: PLC0415

        if value is None:
            raise OutputValidationError(
                f"Claude gave no structured output, {self._name} was asked for. Its text was: {reply.text[:500]}",
                reply=reply,
            )
        inner = value.get(_KEY) if self._wrapped and isinstance(value, dict) else value
        try:
            # As JSON, not as Python values: dates, enums and tuples are text and lists there.
            valid = self._adapter.validate_json(json.dumps(inner))
        except ValidationError as error:
            raise OutputValidationError(
                f"The structured output is not a valid {self._name}: {error}", output=inner, reply=reply
            ) from error
        if self._wrapped and not (isinstance(value, dict) and _KEY in value):
            text = f"The structured output is not a valid {self._name}: the key {_KEY!r} is missing"
            raise OutputValidationError(text, output=value, reply=reply)
        return valid


def _unresolved(output_type: Any) -> NameError | None:
    """The name in a TypedDict's annotations that leads nowhere, if that is what is wrong."""
    try:
        typing.get_type_hints(output_type)
    except NameError as error:
        return error
    except Exception:  # noqa: BLE001 - anything else is told by Pydantic
        return None
    return None


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {_KEY: inner},
        "required": [_KEY],
        "additionalProperties": False,
    }
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped
