"""The conversation on the page, with a scripted CLI: items, questions, failures, and the end."""

import asyncio

import pytest
from pydantic import BaseModel

from toolwire import CLINotFoundError, Context, ToolServer
from toolwire.studio.conversation import Asked, Called, Conversation, Noted, Prompted, Said, TurnEnded
from toolwire.testing import ScriptedCLI, call, exit_early, say, turn

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.asyncio_only,
    pytest.mark.filterwarnings("ignore::toolwire.CanUseToolShadowedWarning"),  # as the command does
]

LIMIT = 20


class Sure(BaseModel):
    """What the user is asked."""

    value: bool


@pytest.fixture
def server():
    """Return a server with tools that add, wait and ask."""
    made = ToolServer("calc")

    @made.tool
    def add(a: int, b: int) -> int:
        return a + b

    @made.tool
    async def wait(context: Context) -> str:
        context.log("waiting")
        await asyncio.sleep(60)
        return "never"

    @made.tool
    async def ask(context: Context) -> str:
        return (await context.elicit("Sure?", Sure)).action

    return made


def play(*steps):
    """Return a peer whose CLI plays these steps."""

    async def peer(_stack, _servers, _live):
        return {"spawn_claude_code_process": ScriptedCLI(list(steps))}

    return peer


async def until(condition):
    """Wait for something that the conversation does."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


async def begin(server, *steps, prompt="go", **options):
    """Send a prompt to a new conversation and return it."""
    conversation = Conversation({"calc": server}, play(*steps), options)
    await conversation.send(prompt)
    return conversation


def kinds(conversation):
    """Return the classes of the items, in order."""
    return [type(each) for each in conversation.items]


async def test_a_turn_with_a_call_that_is_allowed(server):
    """The items are prompt, call with its question and result, text, and end; cost and timeline are there."""
    conversation = await begin(server, call("mcp__calc__add", {"a": 1, "b": 2}), say("Three."))
    await until(lambda: conversation.questions.open)
    [question] = conversation.questions.open
    assert question.title == "May Claude call calc.add?"
    assert question.allow()
    await until(lambda: conversation.state == "idle")
    assert kinds(conversation) == [Prompted, Called, Said, TurnEnded]
    called = conversation.items[1]
    assert called.call.questions == [question]
    assert (called.call.state, called.call.tool) == ("done", "mcp__calc__add")
    assert conversation.items[2].text == "Three."
    assert conversation.totals.cost_usd is not None
    assert [span.kind for span in conversation.timeline.spans].count("permission") == 1
    await conversation.aclose()


async def test_a_denied_call_is_a_failed_one(server):
    """The model gets the reason."""
    conversation = await begin(server, call("mcp__calc__add", {"a": 1, "b": 2}), say("Well."))
    await until(lambda: conversation.questions.open)
    conversation.questions.open[0].deny("not today")
    await until(lambda: conversation.state == "idle")
    assert conversation.items[1].call.state == "failed"
    assert "not today" in str(conversation.items[1].call.content)
    await conversation.aclose()


async def test_always_is_for_this_conversation(server):
    """The next conversation asks for permission again."""
    steps = [
        call("mcp__calc__add", {"a": 1, "b": 2}),
        say("One."),
        call("mcp__calc__add", {"a": 3, "b": 4}),
        say("Two."),
    ]
    conversation = await begin(server, *steps)
    await until(lambda: conversation.questions.open)
    conversation.questions.open[0].allow(always=True)
    await until(lambda: conversation.state == "idle")
    await conversation.send("again")
    await until(lambda: [type(each) for each in conversation.items].count(TurnEnded) == 2)
    assert len(conversation.questions.all) == 1
    await conversation.restart()
    assert (conversation.items, conversation.state) == ([], "new")
    await conversation.send("once more")
    await until(lambda: conversation.questions.open)
    await conversation.aclose()


async def test_an_elicitation_is_an_item_of_its_own(server):
    """It comes where it is asked, after its call."""
    conversation = await begin(server, call("mcp__calc__ask"), say("Done."), allowed_tools=["mcp__calc"])
    await until(lambda: conversation.questions.open)
    assert kinds(conversation) == [Prompted, Called, Asked]
    conversation.questions.open[0].accept({"value": True})
    await until(lambda: conversation.state == "idle")
    assert "accept" in str(conversation.items[1].call.content)
    await conversation.aclose()


async def test_an_interrupt_cancels_the_call(server):
    """The turn then ends."""
    steps = [call("mcp__calc__wait"), say("Still here.")]
    conversation = await begin(server, *steps, allowed_tools=["mcp__calc"])
    await until(lambda: len(conversation.items) > 1 and conversation.items[1].call.logs)
    await conversation.interrupt()
    await until(lambda: conversation.state == "idle")
    assert conversation.items[1].call.state in {"failed", "cancelled"}
    await conversation.aclose()


async def test_a_cli_that_dies_is_told_and_the_next_prompt_starts_another(server):
    """The page shows the error, and a later prompt starts a new CLI."""
    conversation = await begin(server, exit_early(3))
    await until(lambda: conversation.state == "ended")
    assert [each.level for each in conversation.items if isinstance(each, Noted)] == ["error"]
    await conversation.send("again")
    await until(lambda: conversation.state == "ended" and kinds(conversation).count(Noted) == 2)
    await conversation.aclose()


async def test_a_cli_that_cannot_be_started_is_told(server):
    """The page shows the reason."""

    async def peer(_stack, _servers, _live):
        raise CLINotFoundError("there is no CLI here")

    conversation = Conversation({"calc": server}, peer)
    await conversation.send("go")
    assert conversation.state == "ended"
    assert "there is no CLI here" in conversation.items[-1].text
    await conversation.aclose()


async def test_closing_in_mid_turn_ends_everything(server):
    """A question that waits is cancelled."""
    conversation = await begin(server, call("mcp__calc__add", {"a": 1, "b": 2}), say("x"))
    await until(lambda: conversation.questions.open)
    async with asyncio.timeout(LIMIT):
        await conversation.aclose()
    await until(lambda: not conversation.questions.open)


@pytest.mark.parametrize("again", [False, True])
async def test_a_start_that_is_given_up_leaves_nothing(server, again):
    """The user may choose another peer while the CLI still starts: neither that CLI nor its prompts come back."""
    asked, closed, go_on = [], [], asyncio.Event()

    async def peer(stack, _servers, live):
        asked.append(live)
        stack.callback(closed.append, live)
        if not live:
            await go_on.wait()
        return {"spawn_claude_code_process": ScriptedCLI([say("hello")])}

    conversation = Conversation({"calc": server}, peer)
    prompts = [asyncio.create_task(conversation.send(text)) for text in ("one", "two")]
    await until(lambda: asked)
    async with asyncio.timeout(LIMIT):
        await conversation.restart(live=True)
        go_on.set()
        await asyncio.gather(*prompts)
    assert closed == [False]
    assert (conversation.state, conversation.items) == ("new", [])
    if again:
        await conversation.send("three")
        await until(lambda: conversation.state == "idle")
        assert asked == [False, True]
        assert [each.text for each in conversation.items if isinstance(each, Prompted)] == ["three"]
    await conversation.aclose()
    assert closed == asked


async def test_closing_while_the_cli_starts_is_not_an_error(server):
    """The prompt that started it just ends; no error is added to the conversation."""
    starting = asyncio.Event()

    async def peer(_stack, _servers, _live):
        starting.set()
        await asyncio.Event().wait()

    conversation = Conversation({"calc": server}, peer)
    prompt = asyncio.create_task(conversation.send("go"))
    async with asyncio.timeout(LIMIT):
        await starting.wait()
        await conversation.aclose()
        await prompt
    assert kinds(conversation) == [Prompted]


async def test_a_message_that_cannot_be_shown_ends_the_conversation_with_a_word(server, monkeypatch):
    """Otherwise it would seem to be working forever."""
    conversation = Conversation({"calc": server}, play(say("hello")))
    monkeypatch.setattr(conversation, "_show", lambda _message: 1 / 0)
    await conversation.send("go")
    await until(lambda: conversation.state == "ended")
    assert "ZeroDivisionError" in conversation.items[-1].text
    await conversation.aclose()


async def test_runs_of_the_tools_own_are_not_on_the_timeline(server):
    """A tool may run a conversation of its own."""
    from toolwire import ClaudeAgentOptions, run  # noqa: PLC0415 - only here

    @server.tool
    async def nested() -> str:
        options = ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("inner")]))
        return (await run("inner prompt", options=options)).text

    conversation = await begin(
        server, turn(call("mcp__calc__nested")), say("outer"), allowed_tools=["mcp__calc"]
    )
    await until(lambda: conversation.state == "idle")
    assert conversation.timeline.summary.prompts == ["go"]
    await conversation.aclose()
