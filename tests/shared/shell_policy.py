"""A policy for shell commands, and a function that returns its decision about a line."""

import asyncio

from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import commands

POLICY = commands(allow=["git status", "git log", "ls", "echo", "true"], deny=["rm -rf", "git push", "evil"])


def verdict(line, policy=POLICY, **more):
    decision = asyncio.run(policy.decide("Bash", {"command": line, **more}, ToolPermissionContext()))
    return "none" if decision is None else decision.result.behavior
