"""The `mcp` server that stands for one of ours: it says what it is and can do at the moment it is asked."""

from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server as McpServer
from mcp_types.methods import validate_client_request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError


class Core(McpServer[None]):
    """An `mcp` server that says what it is and can do at the moment it is asked."""

    def __init__(self, name: str, able: Callable[[], Mapping[str, Any]], **settings: Any) -> None:
        """`able()` gives the capabilities of the moment."""
        super().__init__(name, **settings)
        self._able = able
        self.ready_made: Any = None
        """Middleware for a carrier that writes with orjson: it answers with what is there as bytes."""

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: Any = None,
        raise_exceptions: bool = False,
    ) -> None:
        del initialization_options  # made before the server was up, they cannot say what it is and can do
        await super().run(read_stream, write_stream, None, raise_exceptions)  # type: ignore[arg-type]

    def introduce(self, hello: Mapping[str, Any]) -> None:
        """Present yourself as the server that is served did."""
        self.instructions = hello.get("instructions")
        try:
            info = types.Implementation.model_validate(hello.get("serverInfo"))
        except ValidationError:
            return
        self.name, self.version, self.title = info.name, info.version, info.title
        self.description, self.website_url, self.icons = info.description, info.website_url, info.icons
        vars(self).pop("_server_info_stamp_source", None)  # where `mcp` keeps a copy of all that

    def accepts(self, method: str, version: str, params: Mapping[str, Any] | None) -> bool:
        """Whether `mcp` would give these parameters to the handler of a request, and not refuse them.

        It asks the models that `mcp` itself asks before it calls a handler: that of the protocol version, and that
        which the handler is registered with.
        """
        handler = self.get_request_handler(method)
        if handler is None:
            return False
        try:
            validate_client_request(method, version, params)
            handler.params_type.model_validate({} if params is None else params, by_name=False)
        except (KeyError, ValueError):  # not in that version; not valid
            return False
        return True

    def get_capabilities(
        self,
        notification_options: Any = None,
        experimental_capabilities: Any = None,
        extensions: Any = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        del notification_options, experimental_capabilities, extensions
        able = dict(self._able())
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            able.pop("logging", None)  # a level comes with each request there
        return types.ServerCapabilities.model_validate(able)
