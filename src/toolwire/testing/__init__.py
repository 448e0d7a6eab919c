"""The test kit: a scripted model on loopback, and the environment that aims the real CLI at it."""

from toolwire.testing.environment import ClaudeEnvironment, claude_environment
from toolwire.testing.model import ScriptedModel, Unexpected
from toolwire.testing.request import Request, ToolResult
from toolwire.testing.script import Answer, Rule, Step, answer, call, drop, fail, hang, say, think, turn

__all__ = [
    "Answer",
    "ClaudeEnvironment",
    "Request",
    "Rule",
    "ScriptedModel",
    "Step",
    "ToolResult",
    "Unexpected",
    "answer",
    "call",
    "claude_environment",
    "drop",
    "fail",
    "hang",
    "say",
    "think",
    "turn",
]
