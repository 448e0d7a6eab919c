"""A framework's adapter to the official SDK: optional, found by its spec, with events made from message classes."""

import asyncio
import dataclasses
import importlib.util
import json
import pickle
import sys
from importlib.metadata import version


class Adapter:
    """Runs an agent of the framework, and gives its events as dicts."""

    def __init__(self, **options):
        if importlib.util.find_spec("claude_agent_sdk") is None:
            raise RuntimeError("pip install claude-agent-sdk")
        import claude_agent_sdk  # noqa: PLC0415 - optional, as in frameworks

        self.sdk = claude_agent_sdk
        self.options = claude_agent_sdk.ClaudeAgentOptions(**options)
        self.tools = []
        self.started = []

    def tool(self, function):
        """Offer a function of the framework as a tool."""

        async def handler(arguments):
            try:
                return {"content": [{"type": "text", "text": json.dumps(function(**arguments))}]}
            except Exception as error:  # noqa: BLE001 - the model is told
                return {"content": [{"type": "text", "text": repr(error)}], "is_error": True}

        schema = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        self.tools.append(self.sdk.tool(function.__name__, function.__doc__, schema)(handler))
        return function

    async def stream(self, prompt):
        """Yield the events of one prompt."""
        server = self.sdk.create_sdk_mcp_server(name="framework", version="1.0.0", tools=self.tools)
        options = dataclasses.replace(
            self.options,
            mcp_servers={"framework": server},
            allowed_tools=[f"mcp__framework__{tool.name}" for tool in self.tools],
            hooks={"PreToolUse": [self.sdk.HookMatcher(hooks=[self.before])]},
        )
        async with self.sdk.ClaudeSDKClient(options=options) as client:
            await client.query(prompt)
            async for message in client.receive_response():
                for event in self.events(message):
                    yield event

    async def before(self, hook_input, tool_use_id, context):
        """Note which tool is about to run."""
        self.started.append([hook_input["tool_name"], isinstance(tool_use_id, str), "signal" in context])
        return {}

    def events(self, message):
        """Turn a message into events, by the names of its classes."""
        kind = type(message).__name__
        message = pickle.loads(pickle.dumps(message))  # noqa: S301 - as a framework does that has a queue between
        if kind == "SystemMessage" and message.subtype == "init":
            yield {"event": "started", "tools": [t for t in message.data["tools"] if "framework" in t]}
        elif kind in {"AssistantMessage", "UserMessage"} and isinstance(message.content, list):
            for block in message.content:
                fields = {k: v for k, v in vars(block).items() if k in {"text", "name", "input", "content"}}
                yield {"event": type(block).__name__, **fields}
        elif isinstance(message, self.sdk.ResultMessage):
            usage = {name: message.usage[name] for name in ("input_tokens", "output_tokens")}
            yield {"event": "done", "result": message.result, "turns": message.num_turns, "usage": usage}


def main():
    """Add two numbers and fail to divide."""
    adapter = Adapter(setting_sources=[], max_turns=5, system_prompt="You add.")
    print(version("claude-agent-sdk"), adapter.sdk.__version__, adapter.sdk.__name__)

    @adapter.tool
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @adapter.tool
    def divide(a: float, b: float) -> float:
        """Divide a number by another."""
        return a / b

    async def run():
        async for event in adapter.stream(sys.argv[1]):
            print(json.dumps(event))

    asyncio.run(run())
    print(adapter.started)


if __name__ == "__main__":
    main()
