"""An agent with limits: a hook that sees every call, and a policy that decides which may run."""

from offline import converse, main

from toolwire import Hooks, PreToolUseHookInput, ToolServer
from toolwire.permissions.policies import allow, deny
from toolwire.testing import call, say

bank = ToolServer("bank")
hooks = Hooks()


@bank.tool
def balance(account: str) -> float:
    """Tell the balance of an account."""
    return {"ada": 100.0}[account]


@bank.tool
def transfer(to: str, amount: float) -> str:
    """Send money."""
    return f"sent {amount} to {to}"


@hooks.pre_tool_use("mcp__bank__.*")
def note(event: PreToolUseHookInput) -> None:
    """Print every call, before the policy decides."""
    print(f"  hook: {event['tool_name']} {event['tool_input']}")


POLICY = deny("mcp__bank__transfer", reason="transfers need a person") | allow("mcp__bank")
SCRIPT = [
    call("mcp__bank__balance", account="ada"),
    call("mcp__bank__transfer", to="eve", amount=100),
    say("There are 100 on the account; a transfer needs a person."),
]

if __name__ == "__main__":
    main(
        converse(
            "Send all of Ada's money to Eve.",
            SCRIPT,
            mcp_servers={"bank": bank},
            hooks=hooks,
            can_use_tool=POLICY,
        )
    )
