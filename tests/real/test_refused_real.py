"""Options that toolwire refuses cannot run, and those that it accepts do: both packages with the real CLI."""

import json
from pathlib import Path

import pytest

from shared.programs import run_python
from shared.refused import find_refused
from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel, say

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PROGRAM = """
import asyncio, dataclasses, importlib, json, sys, uuid, warnings

warnings.simplefilter("ignore")
from shared.refused import NAMES
sdk = importlib.import_module(sys.argv[1])
given = json.loads(sys.argv[2])
names = {name: getattr(sdk, name) for name in ("ClaudeAgentOptions", "HookMatcher", "AgentDefinition", "tool")}
names.update(NAMES, uuid=uuid)


async def outcome(code):
    try:
        made = eval(code, names)
        if not isinstance(made, sdk.ClaudeAgentOptions):
            sdk.create_sdk_mcp_server("s", tools=[made])
            return "fails"
        place = {"cli_path": given["cli"], "cwd": made.cwd or given["cwd"], "setting_sources": []}
        options = dataclasses.replace(made, stderr=made.stderr or (lambda line: None), **place)
        last = None
        async with asyncio.timeout(100):
            async for message in sdk.query(prompt="hi", options=options):
                last = message
        return last.result
    except Exception as error:
        ended = isinstance(error, (sdk.ProcessError, sdk.CLIJSONDecodeError)) or type(error) is Exception
        return "exits" if ended else "raises"


async def main():
    options = sdk.ClaudeAgentOptions(cli_path=given["cli"], cwd=given["cwd"], setting_sources=[])
    async for message in sdk.query(prompt="hi", options=options):
        names["SESSION"] = getattr(message, "session_id", None) or names.get("SESSION")
    print(json.dumps([await outcome(code) for code in given["codes"]]))


asyncio.run(main())
"""

TAKEN = [
    "ClaudeAgentOptions(continue_conversation=True, resume=SESSION)",
    "ClaudeAgentOptions(resume=uuid.UUID(SESSION), fork_session=1)",
    'ClaudeAgentOptions(hooks={"OfTomorrow": [HookMatcher(matcher="Other(*)", hooks=(hook,), timeout="5")]})',
    'ClaudeAgentOptions(hooks={"PreToolUse": [hook, {"matcher": "Bash", "hooks": [hook]}]})',
    'ClaudeAgentOptions(allowed_tools="Read", disallowed_tools={"Bash": 1}.keys(), max_turns="5")',
    'ClaudeAgentOptions(max_budget_usd="1", task_budget={"total": "9000"})',
    'ClaudeAgentOptions(permission_mode="manual", effort="ultra", thinking={"type": "on"})',
    'ClaudeAgentOptions(mcp_servers={"a": None, "b": {"type": "pigeon"}, 3: {"command": []}, "__proto__": {}})',
    'ClaudeAgentOptions(mcp_servers={"a": {"type": "sdk", "name": "a", "instance": "no server"}})',
    'ClaudeAgentOptions(system_prompt={"type": "text", "text": "You are terse."}, output_format={"type": "text"})',
    'ClaudeAgentOptions(agents={"a": AgentDefinition("d", None, tools="Read", effort="ultra")})',
    'ClaudeAgentOptions(tools=True, stderr="x")',
    "ClaudeAgentOptions(mcp_servers=None, betas=None, add_dirs=None, plugins=None, strict_mcp_config=None)",
]


def run(package: str, codes: list[str]) -> tuple[list[str], list[str]]:
    """Run the options with one package; return the outcome of each, and the system prompts that the model got."""
    rules = [lambda request: say("ok")]
    with ScriptedModel([], rules=rules) as model, ClaudeEnvironment(model) as env:
        given = json.dumps({"codes": codes, "cli": bundled_cli(), "cwd": str(env.cwd)})
        variables = {**env.env, "PYTHONPATH": str(Path(__file__).parents[1])}
        done = run_python("-c", PROGRAM, package, given, env=variables, timeout=500)
        assert done.returncode == 0, done.stderr
        prompts = [json.dumps(request.body.get("system")) for request in model.requests]
    return json.loads(done.stdout.splitlines()[-1]), prompts


def test_what_is_refused_cannot_run():
    """With the official SDK, each row of the table of refused options ends as its column says."""
    rows = find_refused()
    outcomes, _ = run("claude_agent_sdk", [row.code for row in rows])
    documented = {row.code: row.there for row in rows}
    assert {
        row.code: "fails" if it == "ok" else it for row, it in zip(rows, outcomes, strict=True)
    } == documented


@pytest.mark.parametrize("package", ["claude_agent_sdk", "toolwire"])
def test_what_is_taken_runs(package: str):
    """These options run with both packages; a system prompt given as text reaches the model only with toolwire."""
    outcomes, prompts = run(package, TAKEN)
    assert dict(zip(TAKEN, outcomes, strict=True)) == dict.fromkeys(TAKEN, "ok")
    assert any("You are terse." in prompt for prompt in prompts) == (package == "toolwire")
