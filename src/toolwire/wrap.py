"""Small wrappers around anything with tools: prefix, rename, filter, combine."""

from toolwire.tools.toolset import combine, only, prefix, rename, without

__all__ = ["combine", "only", "prefix", "rename", "without"]
