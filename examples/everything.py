"""All features of MCP in one server, as the official conformance suite needs them.

`toolwire serve examples/everything.py:server --http` serves it, and `make conformance` runs the suite against it.
Run as a script, it holds a conversation like the other examples.
"""

from collections.abc import Awaitable
from typing import Annotated, Any

import anyio
from pydantic import BaseModel, Field

from toolwire import Audio, Context, Image, Resource, ToolError, ToolServer, tool

server = ToolServer("everything", instructions="One of each thing that a server can offer.")

# One red pixel, and a few samples of silence.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415478da63f8cfc0000003010100f70341430000000049454e44ae426082"
)
SILENCE = b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\x08\0\0\0" + b"\x80" * 8

# Tools: one for each kind of result.


@server.tool(read_only=True)
def test_simple_text() -> str:
    """Return a line of text."""
    return "This is a simple text response for testing."


@server.tool(read_only=True)
def test_image_content() -> Image:
    """Return a picture."""
    return Image(PIXEL)


@server.tool(read_only=True)
def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(SILENCE)


@server.tool(read_only=True)
def test_embedded_resource() -> Resource:
    """Return a document inside the result."""
    return Resource(
        "test://embedded-resource", text="This is an embedded resource content.", mime_type="text/plain"
    )


@server.tool(read_only=True)
def test_multiple_content_types() -> list[str | Image | Resource]:
    """Return text, a picture and a document."""
    data = Resource(
        "test://mixed-content-resource", text='{"test":"data","value":123}', mime_type="application/json"
    )
    return ["Multiple content types test:", Image(PIXEL), data]


@server.tool(read_only=True)
def test_error_handling() -> str:
    """Always fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# Tools that send notifications while they run.


@server.tool(read_only=True)
async def test_tool_with_logging(context: Context) -> str:
    """Log three lines while it runs."""
    context.log("Tool execution started")
    await anyio.sleep(0.05)
    context.log("Tool processing data")
    await anyio.sleep(0.05)
    context.log("Tool execution completed")
    return "Logged three times."


@server.tool(read_only=True)
def test_logging_tool(context: Context) -> str:
    """Log one line, for clients that have set a log level."""
    context.log("Only for clients that set a level")
    return "Logged once."


@server.tool(read_only=True)
async def test_tool_with_progress(context: Context) -> str:
    """Report progress three times."""
    context.progress(0, 100)
    await anyio.sleep(0.05)
    context.progress(50, 100)
    await anyio.sleep(0.05)
    context.progress(100, 100)
    return "Done, all 100 of it."


@server.tool(read_only=True)
async def test_reconnection(context: Context) -> str:
    """Close the stream during the call; the client gets the result when it reconnects."""
    await context.close_stream()
    await anyio.sleep(0.1)
    return "Reconnection test completed successfully"


# Tools that send requests to the client: to its model, to its user, for its folders.


class Account(BaseModel):
    """The data that the user is asked for."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@server.tool
async def test_sampling(prompt: str, context: Context) -> str:
    """Ask the client's model.

    Args:
        prompt: What to ask
    """
    return f"LLM response: {(await context.sample(prompt, max_tokens=100)).text}"


@server.tool
async def test_elicitation(message: str, context: Context) -> str:
    """Ask the user for name and email.

    Args:
        message: What the user is shown
    """
    answer = await context.elicit(message, Account)
    return f"User response: action={answer.action}, content={answer.content}"


DEFAULTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    },
    "required": [],
}


@server.tool
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask with a default in every field."""
    answer = await context.elicit("Please review these values", DEFAULTS)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


def _titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


OPTIONS = ["option1", "option2", "option3"]
CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")},
        },
    },
    "required": [],
}


@server.tool
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Ask with every kind of choice."""
    answer = await context.elicit("Please choose", CHOICES)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


# Schemas: one given as it is, one with a parameter that HTTP clients also send as a header.

CONTACT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", CONTACT)
def contact(args: dict[str, Any]) -> str:
    """Take a contact."""
    return f"Contact: {args}"


server.add(contact)


@server.tool(read_only=True)
def test_custom_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Take a parameter that is also sent as a header, so that a proxy may read it.

    Args:
        region: Where to look
    """
    return f"Looked in {region}."


# Lists that change while clients listen.


def _passing() -> str:
    """Come and go."""
    return "Still here."


@server.tool
def test_trigger_tool_change() -> str:
    """Add a tool, or take it away again."""
    if "test_passing_tool" in server.tools:
        server.remove("test_passing_tool")
        return "Removed."
    server.add(tool(name="test_passing_tool")(_passing))
    return "Added."


@server.tool
def test_trigger_prompt_change() -> str:
    """Add a prompt, or take it away again."""
    if "test_passing_prompt" in server.prompts:
        server.remove_prompt("test_passing_prompt")
        return "Removed."
    server.add_prompt(_passing, name="test_passing_prompt")
    return "Added."


# Requests to a stateless client. A key identifies a request, so that its response is recognised when the client
# repeats the call with it.


class Name(BaseModel):
    """Who."""

    name: str


class Color(BaseModel):
    """Which."""

    color: str


class Consent(BaseModel):
    """Yes or no."""

    ok: bool


async def together(*questions: Awaitable[Any]) -> list[Any]:
    """Send all requests at the same time."""
    answers: list[Any] = [None] * len(questions)

    async def wait(number: int, question: Awaitable[Any]) -> None:
        answers[number] = await question

    async with anyio.create_task_group() as tasks:
        for number, question in enumerate(questions):
            tasks.start_soon(wait, number, question)
    return answers


@server.tool
async def test_missing_capability(context: Context) -> str:
    """Ask the client's model, which not every client has."""
    return (await context.sample("Are you there?", max_tokens=10)).text


@server.tool
async def test_streaming_elicitation(context: Context) -> str:
    """Ask for consent."""
    return f"Consent: {(await context.elicit('Go on?', Consent)).action}"


@server.tool
async def test_input_required_result_elicitation(context: Context) -> str:
    """Ask for a name and greet it."""
    answer = await context.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.content.name}!" if answer.content else "Hello, stranger!"


@server.tool
async def test_input_required_result_sampling(context: Context) -> str:
    """Ask the client's model a question."""
    question = "What is the capital of France?"
    return (await context.sample(question, max_tokens=100, key="capital_question")).text


@server.tool
async def test_input_required_result_list_roots(context: Context) -> str:
    """Ask where the client works."""
    return f"Roots: {[root.uri for root in await context.roots(key='client_roots')]}"


@server.tool
async def test_input_required_result_request_state(context: Context) -> str:
    """Ask, and get the same state back in the second round."""
    answer = await context.elicit("Please confirm", Consent, key="confirm")
    return f"state-ok, {answer.action}"


@server.tool
async def test_input_required_result_tampered_state(context: Context) -> str:
    """Ask, and never reach the second round with a state that was tampered with."""
    answer = await context.elicit("Please confirm", Consent, key="confirm")
    return f"Untouched, {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(context: Context) -> str:
    """Ask user, model and client at once."""
    name, greeting, roots = await together(
        context.elicit("What is your name?", Name, key="user_name"),
        context.sample("Generate a greeting", max_tokens=50, key="greeting"),
        context.roots(key="client_roots"),
    )
    return f"{greeting.text} {name.content} in {[root.uri for root in roots]}"


@server.tool
async def test_input_required_result_multi_round(context: Context) -> str:
    """Ask twice, one after the other."""
    name = await context.elicit("Step 1: What is your name?", Name, key="step1")
    color = await context.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"{name.content} likes {color.content}."


@server.tool
async def test_input_required_result_capabilities(context: Context) -> str:
    """Send only requests that the client supports."""
    questions: list[Awaitable[Any]] = []
    if context.client_supports("elicitation"):
        questions.append(context.elicit("What is your name?", Name, key="user_name"))
    if context.client_supports("sampling"):
        questions.append(context.sample("Generate a greeting", max_tokens=50, key="greeting"))
    return f"Answers: {await together(*questions)}"


# Resources.


@server.resource("test://static-text", name="static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("test://watched-resource", name="watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text that clients may subscribe to."""
    return "Watched resource content."


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
def templated(id: str) -> dict[str, Any]:
    """Data for any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts.


@server.prompt
def test_simple_prompt() -> str:
    """Say one line."""
    return "This is a simple prompt for testing."


@server.prompt(complete={"arg1": ["test", "testing", "tested"], "arg2": ["world"]})
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Repeat the arguments.

    Args:
        arg1: First test argument
        arg2: Second test argument
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Resource | str]:  # noqa: N803 - the suite's name
    """Show a document.

    Args:
        resourceUri: Where the document is from
    """
    document = Resource(resourceUri, text="Embedded resource content for testing.", mime_type="text/plain")
    return [document, "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> list[Image | str]:
    """Show a picture."""
    return [Image(PIXEL), "Please analyze the image above."]


@server.prompt
async def test_input_required_result_prompt(context: Context) -> str:
    """Ask the user before saying anything."""
    schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
    answer = await context.elicit("What context should the prompt use?", schema, key="user_context")
    return f"Consider this: {answer.content}"


if __name__ == "__main__":
    from offline import converse, main

    from toolwire.testing import call, say

    script = [
        call("mcp__all__test_multiple_content_types"),
        call("mcp__all__test_tool_with_progress"),
        call("mcp__all__test_error_handling"),
        say("Text, a picture, a document, progress, and one error on purpose."),
    ]
    main(converse("Show me what you have.", script, mcp_servers={"all": server}, allowed_tools=["mcp__all"]))
