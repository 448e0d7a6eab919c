"""agno's Claude agent, as its documentation has it, with a tool of the process."""

from agno.agents.claude import ClaudeAgent
from claude_agent_sdk import create_sdk_mcp_server, tool


@tool("add", "Add two numbers", {"a": float, "b": float})
async def add(arguments):
    """Add two numbers."""
    return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}


agent = ClaudeAgent(
    name="adder",
    mcp_servers={"calc": create_sdk_mcp_server("calc", "1.0.0", [add])},
    allowed_tools=["mcp__calc__add"],
    setting_sources=[],
    max_turns=4,
)
output = agent.run("What is 15 + 27?")
print(output.status, output.content, output.metrics.input_tokens, output.metrics.output_tokens)
print([(each.tool_name, each.tool_args, each.result, each.tool_call_error) for each in output.tools])
print([type(event).__name__ for event in agent.run("again", stream=True)])
