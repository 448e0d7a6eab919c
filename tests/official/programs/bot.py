"""A bot that talks, line by line, with permissions decided by the program and a client of its own."""

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    TextBlock,
    ToolPermissionContext,
    ToolUseBlock,
)
from claude_agent_sdk.types import PermissionUpdate, StreamEvent

asked = []


class Bot(ClaudeSDKClient):
    """A client that counts its turns."""

    turns = 0

    async def query(self, prompt, session_id="default"):
        self.turns += 1
        await super().query(prompt, session_id)

    async def receive_messages(self):
        async for message in super().receive_messages():
            if not isinstance(message, StreamEvent):
                yield message


async def decide(name: str, tool_input: dict, context: ToolPermissionContext):
    """Allow to write in one folder only."""
    updates = all(isinstance(each, PermissionUpdate) for each in context.suggestions)
    asked.append((name, tool_input.get("file_path"), updates))
    if name == "Write" and tool_input["file_path"].startswith("/nowhere"):
        return PermissionResultDeny(message="not there", interrupt=False)
    return PermissionResultAllow(updated_input=tool_input)


async def main():
    """Answer three lines."""
    options = ClaudeAgentOptions(
        can_use_tool=decide, include_partial_messages=True, setting_sources=[], permission_mode="default"
    )
    async with Bot(options) as bot:
        for line in ("hello", "write a file", "thanks"):
            print(">", line)
            await bot.query(line)
            async for message in bot.receive_response():
                if isinstance(message, AssistantMessage):
                    for block in message.content:
                        if isinstance(block, TextBlock):
                            print("<", block.text)
                        elif isinstance(block, ToolUseBlock):
                            print("tool:", block.name, block.input)
                elif isinstance(message, ResultMessage):
                    print(
                        "result:", message.subtype, message.is_error, message.permission_denials is not None
                    )
        info = await bot.get_server_info()
        print(bot.turns, "commands" in info, asked)


if __name__ == "__main__":
    anyio.run(main)
