"""A server with chains: runs the steps of a chain through the connection of its client.

Owns the run of a chain: the sequence of its steps, their progress and errors, and the money reserved for them. Each
step is an ordinary call of its tool, with its own checks, time limit and permission to spend. `chain` defines
chains. Must not know transports or catalogues.
"""

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from toolwire._protocol.jsonrpc import ClientChannel, RpcError, make_error, make_response
from toolwire._support.log import logger_for
from toolwire.errors import CatalogError, ToolDefinitionError, ToolError
from toolwire.tools.chain import BadReference, Chain, Plan, Results, Step, iter_references, plan_all
from toolwire.tools.context import Context
from toolwire.tools.dispatch.interface import (
    Connection,
    Pending,
    PlannedCall,
    Reply,
    Reservation,
    Reserver,
    Server,
)
from toolwire.tools.paging import Page, find_page, make_pages
from toolwire.tools.results.result import error_result, to_result
from toolwire.tools.schema.arguments import InvalidArguments
from toolwire.tools.server import ToolServer
from toolwire.tools.tool import Tool
from toolwire.tools.toolset import (
    CombinedTools,
    Definitions,
    ExtendedConnection,
    ListedTools,
    ServerWrapper,
    Toolset,
    WrappedToolset,
    listed_tools,
    reply_page,
)

logger = logger_for("server")

META: Final = "toolwire/chain"
"""The key in a result's `_meta` for the number of steps of a chain, and which are done."""
_TOOL_USE: Final = "claudecode/toolUseId"
_LONGEST_ERROR: Final = 20_000  # characters of a step's error
_STRICTNESS: Final = ("always_allow", "always_ask", "always_deny")
_ALMOST: Final = 0.99  # the most that a running step counts as: only its result completes it

Path = tuple[str, ...]
"""The names of the steps that lead to a call: one, and more for a call in a nested chain."""


class Chained(ServerWrapper):
    """A server with chains beside its tools."""

    def __init__(self, server: Server, chains: Sequence[Chain]) -> None:
        if not chains:
            raise ToolDefinitionError("with_chains: no chains given")
        self.chains: dict[str, Chain] = {}
        for each in chains:
            if each.name in self.chains:
                raise ToolDefinitionError(f"with_chains: two chains are called {each.name!r}")
            self.chains[each.name] = each
        super().__init__(server)
        self.own: ToolServer[Any] = ToolServer("chains")
        """The chains that can run now, as tools."""
        self.plans: dict[str, Plan] = {}
        self.problems: dict[str, str] = {}
        """Why each of the other chains cannot run, by name."""
        self._planned: Definitions | None = None

    def connect(self, channel: ClientChannel) -> "ChainedConnection":
        """Open a connection for one client."""
        step_channel = StepChannel(channel)
        return ChainedConnection(self, self._server.connect(step_channel), channel, step_channel)

    def plan(self, definitions: Definitions) -> None:
        """Make tools from the chains that can run with these definitions, if those have changed."""
        if self._planned is definitions:
            return
        self._planned = definitions
        found = plan_all(self.chains, definitions)
        self.plans = {name: plan for name, plan in found.items() if isinstance(plan, Plan)}
        problems = {name: plan for name, plan in found.items() if isinstance(plan, str)}
        tools = [self._make_tool(plan) for plan in self.plans.values()]
        for name, problem in problems.items():
            if self.problems.get(name) != problem:
                logger.warning("%s", problem)
        self.problems = problems
        self.own.swap([name for name in self.own.tools if name in problems], tools)

    def make_list(self, definitions: Definitions) -> list[Page]:
        """Make the pages of the list: the chains that can run, then the tools."""
        chains = [tool.definition for tool in self.own.tools.values()]
        others = [tool for name, tool in definitions.items() if name not in self.chains]
        return make_pages("tools", [*chains, *others])

    def _make_tool(self, plan: Plan) -> Tool[Any]:
        async def run(arguments: dict[str, Any], context: Context[Any]) -> Any:
            return await _RUN.get().run(plan, arguments, context)

        chain = plan.chain
        return Tool(
            chain.name,
            "\n\n".join([chain.description, *self.quote(chain)]),
            plan.input_schema,
            run,
            plan.annotations,
            title=chain.title,
            timeout=chain.timeout,
            tags=chain.tags,
            requires_user_interaction=True if plan.asks_user else None,
            repeatable=False,  # its first steps would run again
        )

    def quote(self, chain: Chain) -> list[str]:
        """Return sentences on the price of a chain, for its description."""
        del chain
        return []

    def flatten(self, chain: Chain, above: Path = ()) -> Iterator[tuple[Path, Step]]:
        """Yield the calls of a chain in order, including those of nested chains."""
        for step in chain.steps:
            path = (*above, step.name)
            inner = self.chains.get(step.tool)
            if inner is None:
                yield path, step
            else:
                yield from self.flatten(inner, path)

    def cli_policies(self) -> list[dict[str, Any]]:
        """Return the policies of the inner server, and for each chain the strictest policy of its steps."""
        policies = super().cli_policies()
        by_tool = {each["name"]: each["permission_policy"] for each in policies}
        for name in self.chains:
            found = [by_tool[tool] for tool in self._tools_of(name, ()) if tool in by_tool]
            strict = max(found, key=_STRICTNESS.index, default="always_allow")
            if strict != "always_allow":
                policies.append({"name": name, "permission_policy": strict})
        return policies

    def _tools_of(self, name: str, above: Path) -> Iterator[str]:
        for each in self.chains[name].steps if name not in above else ():
            if each.tool in self.chains:
                yield from self._tools_of(each.tool, (*above, name))
            else:
                yield each.tool


class ChainedToolset(Chained, WrappedToolset):
    """A toolset with chains beside its tools."""

    def __init__(self, inner: Toolset, chains: Sequence[Chain]) -> None:
        super().__init__(inner, chains)
        self.wrap(inner)
        self._listed = ListedTools(inner)
        self._made_of: Definitions | None = None
        self._pages: list[Page] = []
        if inner.before_list() is None:  # otherwise it is checked once the tools are known
            self.refresh()
            taken = [name for name in self.chains if name in inner.tools]
            if taken or self.problems:
                same = [f"{inner.name!r} has a tool called {name!r} already" for name in taken]
                raise ToolDefinitionError("; ".join([*same, *self.problems.values()]))

    def refresh(self) -> Definitions:
        """Update the chains if the inner tools have changed. Returns the definitions of the inner tools by name."""
        definitions = self._listed.read()
        if definitions is not self._made_of:
            self.plan(definitions)
            self._pages = self.make_list(definitions)
            self._made_of = definitions
        return definitions

    @property
    def tools(self) -> Mapping[str, Tool[Any]]:
        return CombinedTools([self.own.tools, self._inner.tools])

    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> "ChainedConnection":
        step_channel = StepChannel(channel)
        inner = self._inner.connect(step_channel, notify_all_updates=notify_all_updates)
        return ChainedConnection(self, inner, channel, step_channel)

    def page(self, cursor: Any) -> Page:
        self.refresh()
        return find_page(self._pages, cursor)

    def plan_payments(self, chain: Chain) -> list[tuple[Reserver, list[tuple[Path, PlannedCall]]]]:
        """Return the paid calls of a chain, grouped by reserver, each with the path to its step."""
        planned: dict[int, tuple[Reserver, list[tuple[Path, PlannedCall]]]] = {}
        for path, step in self.flatten(chain):
            if (found := self.find_reserver(step.tool)) is not None:
                reserver, name = found
                planned.setdefault(id(reserver), (reserver, []))[1].append((path, _plan_call(step, name)))
        return list(planned.values())

    def quote(self, chain: Chain) -> list[str]:
        payments = self.plan_payments(chain)
        return [text for reserver, calls in payments if (text := reserver.quote([call for _, call in calls]))]

    def find_reserver(self, tool: str) -> tuple[Reserver, str] | None:
        return None if tool in self.chains else super().find_reserver(tool)


class StepChannel(ClientChannel):
    """The client's channel as the inner connection sees it: progress of a step becomes progress of its chain."""

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self.session, self.request_scope = channel.session, channel.request_scope
        self.server_wide = channel.server_wide
        self.running_steps: dict[str, Callable[[float, float | None, str | None], None]] = {}
        """The callback for the progress of each running step, by its progress token."""

    @property
    def capabilities(self) -> dict[str, Any]:
        return self._channel.capabilities

    def client_key(self) -> Any:
        return self._channel.client_key()

    def notify(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        token = params.get("progressToken") if message.get("method") == "notifications/progress" else None
        if token in self.running_steps:
            report = self.running_steps[token]
            report(params.get("progress", 0.0), params.get("total"), params.get("message"))
            return
        self._channel.notify(message)

    def own_list_changed(self) -> bool:
        return self._channel.own_list_changed()

    async def request(
        self, method: str, params: dict[str, Any], *, key: str | None = None, repeatable: bool = True
    ) -> dict[str, Any]:
        # A chain is never run again from its start: its first steps may have changed something.
        repeatable = repeatable and not self.running_steps
        return await self._channel.request(method, params, key=key, repeatable=repeatable)

    def close_stream(self) -> None:
        self._channel.close_stream()


class ChainedConnection(ExtendedConnection):
    """Runs the chains of one client."""

    def __init__(
        self, server: Chained, inner: Connection, channel: ClientChannel, step_channel: StepChannel
    ) -> None:
        super().__init__(server.own, inner, channel)
        self.server = server
        self.step_channel = step_channel

    def is_own(self, tool: object) -> bool:
        return tool in self.server.chains

    async def send_step(self, message: dict[str, Any]) -> Reply | None:
        """Send the call of a step to the inner server, and return its reply."""
        return await self._inner.answer(message)

    # The list.

    def list_tools(self, message: dict[str, Any], encoded: bool) -> Reply | Pending:
        server = self.server
        if not isinstance(server, ChainedToolset) or server.before_list() is not None:
            return Pending(self._list_later, message)
        return reply_page(message, server.page, encoded)

    async def _list_later(self, message: dict[str, Any]) -> Reply:
        try:
            definitions = await self.load_tools()
        except RpcError as error:
            return make_error(message["id"], error)
        return reply_page(message, partial(find_page, self.server.make_list(definitions)))

    async def load_tools(self) -> Definitions:
        """Wait for the tools of the inner server, and check the chains against them."""
        server = self.server
        if isinstance(server, ChainedToolset):
            if (ready := server.before_list()) is not None:
                await ready()
            return server.refresh()
        definitions = {tool["name"]: tool async for tool in listed_tools(self._inner)}
        server.plan(definitions)
        return definitions

    # The call.

    async def call_own(self, message: dict[str, Any]) -> Reply | None:
        name = message["params"]["name"]
        problem = None if name in self.server.own.tools else self.server.problems.get(name)
        if problem is not None and "id" in message:
            return make_response(
                message["id"], error_result(f"The chain cannot run: {problem}. Nothing was done.")
            )
        token = _RUN.set(ChainRun(self, message.get("id")))
        try:
            return await self.send_own(message)
        finally:
            _RUN.reset(token)


class StepFailed(Exception):  # noqa: N818 - an event
    """Raised when a step fails, with the path to it and its error text."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        super().__init__(text)


@dataclass
class ChainRun:
    """One call of a chain, including its nested chains."""

    connection: ChainedConnection
    request_id: Any
    done: list[str] = field(default_factory=list)
    """The paths of the calls that succeeded."""
    _steps: int = 0
    _total: int = 0
    _reported: float = -1.0
    _reserved: dict[Path, tuple[Reservation, int]] = field(default_factory=dict)

    async def run(self, plan: Plan, arguments: dict[str, Any], context: Context[Any]) -> Any:
        """Run a chain, and return its MCP result: if a step fails, an error that lists the steps done before it."""
        self._total = plan.calls
        reservations: list[Reservation] = []
        try:
            await self._reserve(plan, reservations)
            result = await self._run(plan, arguments, context, ())
        except StepFailed as failed:
            return self._describe_failure(plan, failed)
        finally:
            for each in reservations:
                each.release()
        about: dict[str, Any] = {"steps": self._total, "done": list(self.done)}
        if reservations:
            about["reserved_micros"] = sum(each.micros for each in reservations)
        return {**result, "_meta": {**(result.get("_meta") or {}), META: about}}

    async def _run(
        self, plan: Plan, arguments: dict[str, Any], context: Context[Any], above: Path
    ) -> dict[str, Any]:
        results = Results(arguments, plan.is_optional)
        last: dict[str, Any] = {}
        for step in plan.chain.steps:
            path = (*above, step.name)
            try:
                filled = results.arguments(step.args)
            except BadReference as error:
                raise StepFailed(path, str(error)) from None
            last = await self._call(step, filled, context, path)
            results.add(step.name, last)
        if plan.chain.result is None:
            return last
        try:
            value = results.result(plan.chain.result)
        except BadReference as error:
            raise StepFailed((*above, "result"), str(error)) from None
        return _as_result(value)

    async def _call(
        self, step: Step, arguments: dict[str, Any], context: Context[Any], path: Path
    ) -> dict[str, Any]:
        server = self.connection.server
        if step.tool in server.chains:
            return await self._call_chain(step, arguments, context, path)
        label = "/".join(path)
        self._report_progress(context, self._steps, f"{label}: {step.tool}")
        reply = None
        with anyio.move_on_after(step.timeout) as limit:
            reply = await self._send(step, arguments, context, path)
        if limit.cancelled_caught:
            raise StepFailed(path, f"{step.tool} timed out after {step.timeout:g} s")
        if reply is None or "error" in reply:
            error = (reply or {}).get("error") or {}
            raise StepFailed(path, str(error.get("message") or f"{step.tool} returned no response"))
        result: dict[str, Any] = reply["result"]
        if result.get("isError"):
            raise StepFailed(path, _text_of(result) or f"{step.tool} failed without an error message")
        self._steps += 1
        self.done.append(label)
        self._report_progress(context, self._steps, f"{label} done")
        return result

    async def _call_chain(
        self, step: Step, arguments: dict[str, Any], context: Context[Any], path: Path
    ) -> dict[str, Any]:
        server = self.connection.server
        tool, plan = server.own.tools.get(step.tool), server.plans.get(step.tool)
        if tool is None or plan is None:
            raise StepFailed(path, f"the chain {step.tool!r} can no longer run")
        try:
            values = tool.parameters.validate(arguments)
        except InvalidArguments as error:
            raise StepFailed(path, str(error)) from None
        seconds = min((each for each in (step.timeout, plan.chain.timeout) if each is not None), default=None)
        with anyio.move_on_after(seconds):
            return await self._run(plan, values, context, path)
        raise StepFailed(path, f"{step.tool} timed out after {seconds:g} s")

    async def _send(
        self, step: Step, arguments: dict[str, Any], context: Context[Any], path: Path
    ) -> Reply | None:
        """Call the tool of a step. If the client repeats its request, the step gets the same id."""
        channel, label = self.connection.step_channel, "/".join(path)
        token = f"chain-{secrets.token_hex(8)}"
        request_id = f"{self.request_id}/{label}"
        if channel.request_scope is None:  # request ids are reused there, so they identify nothing
            request_id += f"/{next(_COUNTER)}"
        meta: dict[str, Any] = {"progressToken": token}
        if context.tool_use_id is not None:
            meta[_TOOL_USE] = f"{context.tool_use_id}/{label}"
        start = self._steps

        def report(progress: float, total: float | None, message: str | None) -> None:
            share = min(max(progress / total, 0.0), 1.0) if total else 0.0
            text = f"{label}: {message}" if message else label
            self._report_progress(context, start + share * _ALMOST, text)

        channel.running_steps[token] = report
        reservation, index = self._reserved.get(path, (None, 0))
        params = {"name": step.tool, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        try:
            with nullcontext() if reservation is None else reservation.using(index):
                return await self.connection.send_step(message)
        finally:
            del channel.running_steps[token]

    def _report_progress(self, context: Context[Any], progress: float, message: str) -> None:
        """Report the progress of the whole chain. MCP requires that it increases with each report."""
        if progress > self._reported or (progress == self._reported == self._total):
            self._reported = progress
            context.progress(progress, self._total, message)

    # Money.

    async def _reserve(self, plan: Plan, reservations: list[Reservation]) -> None:
        """Reserve the money of all paid steps together, before the first one runs."""
        server = self.connection.server
        if not isinstance(server, ChainedToolset):
            return
        for reserver, calls in server.plan_payments(plan.chain):
            try:
                reservation = await reserver.reserve([call for _, call in calls])
            except CatalogError as error:
                raise ToolError(f"The chain was not started: {error}") from None
            reservations.append(reservation)
            for index, (path, _) in enumerate(calls):
                self._reserved[path] = (reservation, index)

    # The error result.

    def _describe_failure(self, plan: Plan, failed: StepFailed) -> dict[str, Any]:
        label = "/".join(failed.path)
        text = failed.text
        if len(text) > _LONGEST_ERROR:
            text = f"{text[:_LONGEST_ERROR]}... ({len(text) - _LONGEST_ERROR} more characters)"
        before = f"Done before it: {', '.join(self.done)}." if self.done else "Nothing was done before it."
        result = error_result(
            f"Chain {plan.chain.name!r} stopped at step {label!r} ({self._steps + 1} of {self._total}):"
            f" {text}\n{before}"
        )
        about = {"steps": self._total, "done": list(self.done), "failed": label}
        return {**result, "_meta": {META: about}}


_RUN: ContextVar[ChainRun] = ContextVar("toolwire_chain_run")
_COUNTER: Final = itertools.count(1)


def _plan_call(step: Step, name: str) -> PlannedCall:
    known = {key: value for key, value in step.args.items() if not any(True for _ in iter_references(value))}
    return PlannedCall(name, known, step.max_price)


def _as_result(value: Any) -> dict[str, Any]:
    result = to_result(value)
    if isinstance(value, dict):
        result["structuredContent"] = value
    return result


def _text_of(result: Mapping[str, Any]) -> str:
    blocks = [each for each in result.get("content") or [] if isinstance(each, Mapping)]
    return "\n".join(str(each.get("text")) for each in blocks if each.get("type") == "text")
