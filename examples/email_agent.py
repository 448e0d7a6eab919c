"""An email agent: tools on the application's own state, which they get from the context."""

from dataclasses import dataclass
from typing import Literal

from offline import converse, main

from toolwire import Context, ToolError, ToolServer
from toolwire.testing import call, say


@dataclass
class Email:
    """One message."""

    id: int
    sender: str
    subject: str
    body: str
    folder: Literal["inbox", "archive"] = "inbox"


class Mailbox:
    """The application's own object, which the tools and the rest of the program share."""

    def __init__(self) -> None:
        self.emails = [
            Email(1, "ada@example.com", "Lunch?", "Shall we have lunch on Friday?"),
            Email(2, "bank@example.com", "Invoice 17", "Your invoice over 42 euros is due."),
            Email(3, "grace@example.com", "Compiler", "It compiles!"),
        ]


mail = ToolServer("mail", state=Mailbox())


@mail.tool(read_only=True)
def inbox(context: Context[Mailbox]) -> list[dict[str, str | int]]:
    """List what is in the inbox: id, sender and subject."""
    return [
        {"id": each.id, "from": each.sender, "subject": each.subject}
        for each in context.state.emails
        if each.folder == "inbox"
    ]


@mail.tool(read_only=True)
def search(text: str, context: Context[Mailbox]) -> list[Email]:
    """Find emails that contain a text.

    Args:
        text: What to look for, in subject and body
    """
    found = [each for each in context.state.emails if text.lower() in (each.subject + each.body).lower()]
    context.log(f"{len(found)} emails contain {text!r}")
    return found


@mail.tool
def archive(id: int, context: Context[Mailbox]) -> str:
    """Move an email to the archive."""
    for each in context.state.emails:
        if each.id == id:
            each.folder = "archive"
            return f"Archived {each.subject!r}."
    raise ToolError(f"There is no email {id}. Use inbox() to see which there are.")


SCRIPT = [
    call("mcp__mail__inbox"),
    call("mcp__mail__search", text="invoice"),
    call("mcp__mail__archive", {"id": 7}),
    call("mcp__mail__archive", {"id": 2}),
    say("The invoice over 42 euros is archived."),
]

if __name__ == "__main__":
    prompt = "Find the invoice and archive it."
    main(converse(prompt, SCRIPT, mcp_servers={"mail": mail}, allowed_tools=["mcp__mail"]))
