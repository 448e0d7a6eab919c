"""Ready-made policies for `can_use_tool` and for hooks. They compose: `deny(...) | inside(...) | ask()`.

The first opinion counts, and what has no opinion in the end is denied. Decisions are pure; what asks a person or
writes a record is passed in.
"""

from toolwire.permissions._asking import Answer, Asker, ask, remember
from toolwire.permissions._audit import audit
from toolwire.permissions._hook import as_hook
from toolwire.permissions._limits import budget
from toolwire.permissions._matching import allow, deny
from toolwire.permissions._paths import FILE_TOOLS, inside
from toolwire.permissions.policy import Decision, Judge, Policy, first_of, with_timeout
from toolwire.permissions.shell.commands import commands
from toolwire.permissions.terminal import ask_on_terminal, terminal_elicitation

__all__ = [
    "FILE_TOOLS",
    "Answer",
    "Asker",
    "Decision",
    "Judge",
    "Policy",
    "allow",
    "as_hook",
    "ask",
    "ask_on_terminal",
    "audit",
    "budget",
    "commands",
    "deny",
    "first_of",
    "inside",
    "remember",
    "terminal_elicitation",
    "with_timeout",
]
