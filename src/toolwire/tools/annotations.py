"""`ToolAnnotations` of the `mcp` package, loaded when it is first used. A plain dict works as well."""

from mcp.types import ToolAnnotations

__all__ = ["ToolAnnotations"]
