"""`receive_messages()` and `receive_response()` on both packages: async generators, one built on the other.

Every test runs on the official package and on ours, with a transport in memory.
"""

import inspect
from contextlib import aclosing

import anyio
import claude_agent_sdk
import pytest

import toolwire
from shared.replay import Replay, done, replay_class, said

pytestmark = [
    pytest.mark.anyio,
    # The official generators leave the inner one to the garbage collector, which trio warns of; ours, where it is
    # overridden.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

LIMIT = 20
METHODS = ("receive_messages", "receive_response")


@pytest.fixture(params=[toolwire, claude_agent_sdk], ids=["ours", "official"])
def sdk(request):
    """Return the package under test."""
    return request.param


ANSWER = (said("hi"), done("one"))


def client_of(sdk, kind=None, frames=ANSWER):
    return (kind or sdk.ClaudeSDKClient)(transport=replay_class(sdk)(*frames))


def names(messages):
    return [type(message).__name__ for message in messages]


@pytest.mark.parametrize("method", METHODS)
async def test_kind(sdk, method):
    """An async generator function, of the class and of an object; calling it gives an async generator."""
    client = client_of(sdk)
    assert inspect.isasyncgenfunction(getattr(sdk.ClaudeSDKClient, method))
    assert inspect.isasyncgenfunction(getattr(client, method))
    assert not inspect.iscoroutinefunction(getattr(client, method))
    messages = getattr(client, method)()
    assert inspect.isasyncgen(messages)
    assert messages.__aiter__() is messages
    await messages.aclose()


@pytest.mark.parametrize("method", METHODS)
async def test_not_connected_is_raised_at_the_first_item(sdk, method):
    """The first item raises, not the call; before connect() and after disconnect(); then the generator is over."""
    client = client_of(sdk)
    for _ in range(2):
        messages = getattr(client, method)()
        with pytest.raises(sdk.CLIConnectionError, match="Not connected"):
            await anext(messages)
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        with anyio.fail_after(LIMIT):
            await client.connect()
            await client.disconnect()


@pytest.mark.parametrize("method", METHODS)
async def test_made_before_connect_and_read_after(sdk, method):
    """The generator looks for the connection when its first item is requested."""
    client = client_of(sdk)
    with anyio.fail_after(LIMIT):
        messages = getattr(client, method)()
        async with client:
            await client.query("x")
            assert names([await anext(messages), await anext(messages)]) == [
                "AssistantMessage",
                "ResultMessage",
            ]
            await messages.aclose()


async def test_a_response_ends_with_its_result_and_the_next_begins_after_it(sdk):
    """Nothing is lost between two responses."""
    with anyio.fail_after(LIMIT):
        async with client_of(sdk) as client:
            for _ in range(3):
                await client.query("x")
                async with aclosing(client.receive_response()) as messages:
                    assert names([m async for m in messages]) == ["AssistantMessage", "ResultMessage"]


@pytest.mark.parametrize("method", METHODS)
async def test_leaving_early_loses_nothing(sdk, method):
    """What was not read is there for the next reader, and the next reader may read another way."""
    with anyio.fail_after(LIMIT):
        async with client_of(sdk, frames=[said("a"), said("b"), said("c"), done()]) as client:
            await client.query("x")
            seen = []
            for _ in range(2):
                async with aclosing(getattr(client, method)()) as messages:
                    async for message in messages:
                        seen.append(message)
                        break
            async with aclosing(client.receive_response()) as messages:
                seen += [message async for message in messages]
            assert [m.content[0].text for m in seen[:-1]] == ["a", "b", "c"]


@pytest.mark.parametrize("method", METHODS)
async def test_closed_sent_and_thrown_into(sdk, method):
    """`aclose()` ends the generator, `asend()` continues it, `athrow()` raises at its `yield` and ends it."""
    with anyio.fail_after(LIMIT):
        async with client_of(sdk, frames=[said("a"), said("b"), said("c"), said("d"), done()]) as client:
            await client.query("x")
            messages = getattr(client, method)()
            with pytest.raises(TypeError):
                await messages.asend("too early")
            assert (await messages.asend(None)).content[0].text == "a"
            assert (await messages.asend("ignored")).content[0].text == "b"
            with pytest.raises(LookupError, match="mine"):
                await messages.athrow(LookupError("mine"))
            with pytest.raises(StopAsyncIteration):
                await anext(messages)
            closed = getattr(client, method)()
            assert (await anext(closed)).content[0].text == "c"
            await closed.aclose()
            assert [m async for m in closed] == []


@pytest.mark.parametrize("method", METHODS)
async def test_a_cancelled_wait_ends_the_generator_and_loses_nothing(sdk, method):
    """As with any async generator: a new one goes on with what has come meanwhile."""
    with anyio.fail_after(LIMIT):
        async with client_of(sdk) as client:
            if sdk is toolwire:  # which would say that nothing was asked for
                client._conversation.session._prompt_streams += 1
            messages = getattr(client, method)()
            async with anyio.create_task_group() as group:
                group.start_soon(anext, messages)
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
            with pytest.raises(StopAsyncIteration):
                await anext(messages)
            await client.query("x")
            async with aclosing(client.receive_response()) as again:
                assert names([m async for m in again]) == ["AssistantMessage", "ResultMessage"]


class TestOverridden:
    """`receive_response()` is built on `receive_messages()`, whoever changed that and however."""

    async def check(self, client):
        with anyio.fail_after(LIMIT):
            async with client:
                await client.query("x")
                async with aclosing(client.receive_response()) as messages:
                    seen = [message async for message in messages]
        assert seen[0] == "mine"
        assert names(seen[1:]) == ["AssistantMessage", "ResultMessage"]

    async def test_in_a_subclass(self, sdk):
        """The subclass calls the original through `super()`."""

        class Mine(sdk.ClaudeSDKClient):
            async def receive_messages(self):
                yield "mine"
                async with aclosing(super().receive_messages()) as messages:
                    async for message in messages:
                        yield message

        await self.check(client_of(sdk, Mine))

    async def test_on_the_instance(self, sdk):
        """A function was assigned to the instance."""
        client = client_of(sdk)
        original = client.receive_messages

        async def mine():
            yield "mine"
            async with aclosing(original()) as messages:
                async for message in messages:
                    yield message

        client.receive_messages = mine
        await self.check(client)

    async def test_on_the_class(self, sdk, monkeypatch):
        """Tracing libraries patch like this."""
        original = sdk.ClaudeSDKClient.receive_messages

        async def mine(self):
            yield "mine"
            async with aclosing(original(self)) as messages:
                async for message in messages:
                    yield message

        monkeypatch.setattr(sdk.ClaudeSDKClient, "receive_messages", mine)
        await self.check(client_of(sdk))

    async def test_by_a_proxy_that_claims_to_be_the_original(self, sdk, monkeypatch):
        """Libraries that tracing is built with make such proxies: they have the attributes of what they wrap."""

        class Proxy:
            def __init__(self, wrapped):
                self.wrapped = wrapped

            def __get__(self, instance, kind):
                return Proxy(self.wrapped.__get__(instance, kind))

            def __getattr__(self, name):
                return getattr(self.wrapped, name)

            async def __call__(self):
                yield "mine"
                async with aclosing(self.wrapped()) as messages:
                    async for message in messages:
                        yield message

        proxy = Proxy(sdk.ClaudeSDKClient.receive_messages)
        monkeypatch.setattr(sdk.ClaudeSDKClient, "receive_messages", proxy)
        client = client_of(sdk)
        assert client.receive_messages.__func__ is proxy.wrapped
        await self.check(client)

    async def test_without_a_connection(self, sdk):
        """A test double that yields messages of its own needs none."""

        class Double(sdk.ClaudeSDKClient):
            async def receive_messages(self):
                yield sdk.AssistantMessage([], "m")
                yield sdk.ResultMessage("success", 1, 1, False, 1, "s")
                yield sdk.AssistantMessage([], "never read")

        async with aclosing(Double().receive_response()) as messages:
            assert names([m async for m in messages]) == ["AssistantMessage", "ResultMessage"]

    async def test_by_one_iterator_for_several_responses(self, sdk):
        """The iterator is not closed after the first response."""
        results = [sdk.ResultMessage("success", 1, 1, False, turns, "s") for turns in (1, 2)]

        async def shared():
            for result in results:
                yield result

        client = client_of(sdk)
        stream = shared()
        client.receive_messages = lambda: stream
        for result in results:
            async with aclosing(client.receive_response()) as messages:
                assert [m async for m in messages] == [result]
        await stream.aclose()

    async def test_by_something_that_cannot_be_iterated(self, sdk):
        """The error is that of `async for`."""
        client = client_of(sdk)
        client.receive_messages = lambda: [1]
        with pytest.raises(TypeError, match="async for"):
            await anext(client.receive_response())

    async def test_receive_response_does_not_change_receive_messages(self, sdk):
        """An overridden `receive_response()` has no effect on it."""

        class Mine(sdk.ClaudeSDKClient):
            async def receive_response(self):
                yield "mine"

        with anyio.fail_after(LIMIT):
            async with client_of(sdk, Mine) as client:
                await client.query("x")
                messages = client.receive_messages()
                assert names([await anext(messages)]) == ["AssistantMessage"]
                await messages.aclose()


async def test_two_readers_of_one_generator_are_refused(sdk):
    """Python raises its own error for the second reader."""

    class Silent(Replay):
        def answers(self, frame):
            return super().answers(frame) if frame["type"] == "control_request" else []

    with anyio.fail_after(LIMIT):
        async with sdk.ClaudeSDKClient(transport=replay_class(sdk, Silent)()) as client:
            await client.query("x")
            messages = client.receive_messages()
            async with anyio.create_task_group() as group:
                group.start_soon(anext, messages)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(RuntimeError, match="already running"):
                    await anext(messages)
                group.cancel_scope.cancel()
