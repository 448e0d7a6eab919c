"""LangChain's chat model over the official SDK."""

from langchain_claude_agent_sdk import ChatClaudeAgent
from langchain_core.messages import HumanMessage

model = ChatClaudeAgent()
reply = model.invoke([HumanMessage("hi")])
print(reply.content, reply.usage_metadata)
print([chunk.content for chunk in model.stream("again")])
