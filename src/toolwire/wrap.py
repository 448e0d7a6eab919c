"""Small wrappers around anything with tools: prefix, rename, filter, combine."""

from toolwire.tools.toolset import X
