"""The tool list of a server as it goes out, made once for each version of the protocol.

`mcp` would check and write all of it again at each request. It knows nothing of carriers, but for one thing: what
it gives holds bytes (`orjson.Fragment`), so only a carrier that writes with orjson may ask.
"""

from typing import Any, Final

import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolwire.mcp.serve.clients import client_of
from toolwire.mcp.serve.host import Serving
from toolwire.mcp.serve.translate import enveloped
from toolwire.tools.toolset import Toolset

METHOD: Final = "tools/list"
_KEPT: Final = 64  # pages


class Lists:
    """The pages of what is served now."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._pages: dict[tuple[str, Any], tuple[orjson.Fragment, dict[str, Any]]] = {}

    def page(self, version: str, cursor: Any) -> dict[str, Any] | None:
        """The result of `tools/list`. None if it is for `mcp` to say what that is."""
        server = self._serving.server
        if not isinstance(server, Toolset) or server.before_list() is not None:
            return None
        try:
            plain, mark = server.page(cursor)
        except KeyError:
            return None
        kept = self._pages.get((version, cursor))
        if kept is None or kept[0] is not mark:
            made = self._made(version, plain)
            if made is None:
                return None
            if len(self._pages) >= _KEPT:
                self._pages.clear()
            kept = self._pages[version, cursor] = (mark, made)
        with self._serving.counted(METHOD, ""):  # here, because what `mcp` answers is counted there
            return kept[1]

    def _made(self, version: str, plain: dict[str, Any]) -> dict[str, Any] | None:
        try:
            made = shaped(self._serving, METHOD, version, enveloped(METHOD, plain))
            return {**made, "tools": orjson.Fragment(orjson.dumps(made["tools"]))}
        except (ValidationError, TypeError, ValueError, RecursionError):
            return None

    async def middleware(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware of `mcp`: a list that is there already is not made again."""
        if (
            ctx.method == METHOD
            and client_of(ctx).initialize_accepted
            and self._serving.core.accepts(METHOD, ctx.protocol_version, ctx.params)
        ):
            page = self.page(ctx.protocol_version, (ctx.params or {}).get("cursor"))
            if page is not None:
                return page
        return await call_next(ctx)


def shaped(serving: Serving, method: str, version: str, result: dict[str, Any]) -> dict[str, Any]:
    """A result as `mcp` would send it. `ValidationError` if it would not."""
    made = serialize_server_result(method, version, result)
    if version in MODERN_PROTOCOL_VERSIONS:
        stamp = {types.SERVER_INFO_META_KEY: serving.core.server_info_stamp}
        made["_meta"] = {**stamp, **(made.get("_meta") or {})}
    return made
