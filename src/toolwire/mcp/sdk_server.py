"""The server that `create_sdk_mcp_server` makes: one of ours that programs can also use as a server of `mcp`.

The official package puts a low-level server of `mcp` into its config, which some programs run themselves: over
their own streams, or over HTTP. `mcp` must not be loaded before a program does that.
"""

from typing import Any, Final

from toolwire.errors import NotSupportedError
from toolwire.mcp.foreign.detect import PRIVATE_ATTRIBUTES
from toolwire.tools.names import McpSdkServerConfig, find_name_problem
from toolwire.tools.server import ToolServer, choose_tools
from toolwire.tools.tool import Tool

_MCP_ATTRIBUTES: Final = {
    *PRIVATE_ATTRIBUTES.split(),
    *("cache_hints", "create_initialization_options", "description", "extensions", "get_capabilities"),
    *("get_notification_handler", "get_request_handler", "get_tool_input_schema", "icons", "lifespan"),
    *("middleware", "run", "server_info", "server_info_stamp", "session_manager", "streamable_http_app"),
    *("title", "website_url"),
}


class SdkServer(ToolServer[Any]):
    """A `ToolServer` that also has the attributes of a low-level `mcp` server, for programs that run it as one."""

    def __getattr__(self, name: str) -> Any:
        if name in {"add_request_handler", "add_notification_handler"}:
            raise AttributeError(
                f"{name}() is not available: the handler would not reach the CLI, because toolwire calls tools "
                "directly. Add resources and prompts with the methods of ToolServer, or put a server of `mcp` into "
                "mcp_servers.",
                name=name,
                obj=self,
            )
        if name not in _MCP_ATTRIBUTES:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )
        if "_as_mcp_server" not in vars(self):
            from toolwire.mcp.serve.start import as_mcp_server  # noqa: PLC0415 - loads mcp

            try:
                self._as_mcp_server = as_mcp_server(self)
            except NotSupportedError as error:  # so that hasattr() works
                raise AttributeError(str(error), name=name, obj=self) from error
        return getattr(self._as_mcp_server, name)


def create_sdk_mcp_server(
    name: str, version: str = "1.0.0", tools: "list[Tool[Any]] | None" = None, **settings: Any
) -> McpSdkServerConfig:
    """Make a server as in the official SDK: a config dict for `mcp_servers`. `settings` are those of `ToolServer`.

    The CLI knows the server by its key in `mcp_servers`, so any name is accepted.
    """
    called = name if find_name_problem(name) is None else "tools"
    server = SdkServer(called, version, choose_tools(tools or ()), **settings)
    return {"type": "sdk", "name": name, "instance": server}
