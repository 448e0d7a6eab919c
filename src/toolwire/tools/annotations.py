"""`ToolAnnotations`: MCP's hints about a tool, and any others. A plain dict works as well.

Imports `mcp`, so this module is only loaded when the class is first used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import model_validator
from pydantic.alias_generators import to_camel

from mcp import types

__all__ = ["ToolAnnotations"]


class ToolAnnotations(types.ToolAnnotations, extra="allow"):
    """Hints about a tool, in MCP's spelling (`readOnlyHint`) or in Python's (`read_only_hint`).

    Names that MCP does not define are kept and sent too. One of them is for the CLI: `maxResultSizeChars`, the
    length of the longest result that it gives to the model whole.
    """

    maxResultSizeChars: int | None = None  # noqa: N815 - as the official class has it

    @model_validator(mode="before")
    @classmethod
    def _use_wire_names(cls, given: Any) -> Any:
        """Convert the names of hints to MCP's spelling, which wins if a hint is given in both."""
        if not isinstance(given, Mapping):
            return given
        wire = set(map(to_camel, cls.model_fields))  # fields have MCP's names in mcp 1.x, Python's in 2.x
        spelled = {name: camel if (camel := to_camel(name)) in wire else name for name in given}
        return {spelled[name]: given.get(spelled[name], given[name]) for name in given}

    if TYPE_CHECKING:  # a type checker sees the aliases of a model only if they are written out

        def __init__(
            self,
            *,
            title: str | None = None,
            readOnlyHint: bool | None = None,  # noqa: N803
            read_only_hint: bool | None = None,
            destructiveHint: bool | None = None,  # noqa: N803
            destructive_hint: bool | None = None,
            idempotentHint: bool | None = None,  # noqa: N803
            idempotent_hint: bool | None = None,
            openWorldHint: bool | None = None,  # noqa: N803
            open_world_hint: bool | None = None,
            maxResultSizeChars: int | None = None,  # noqa: N803
            max_result_size_chars: int | None = None,
            **more: Any,
        ) -> None: ...
