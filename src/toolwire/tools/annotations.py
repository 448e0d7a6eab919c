"""`ToolAnnotations` of the `mcp` package, loaded when somebody asks for it. A plain dict does as well."""

from mcp.types import ToolAnnotations

__all__ = ["ToolAnnotations"]
