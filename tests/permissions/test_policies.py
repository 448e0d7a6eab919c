"""Policies: what each decides, and how they compose."""

import json
import os
import stat
import threading
import time

import anyio
import anyio.lowlevel
import pytest

from toolwire.permissions import (
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ToolPermissionContext,
)
from toolwire.permissions.policies import (
    Policy,
    allow,
    as_hook,
    ask,
    audit,
    budget,
    deny,
    first_of,
    remember,
    with_timeout,
)

pytestmark = pytest.mark.anyio

EMPTY = ToolPermissionContext()


async def verdict(policy, name="Read", context=EMPTY, **given):
    """Return "allow", "deny" or "none"."""
    decision = await policy.decide(name, given, context)
    return "none" if decision is None else decision.result.behavior


async def why(policy, name="Read", context=EMPTY, **given):
    return (await policy(name, given, context)).message


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("Bash", "bash", False),
        ("Edit|Write", "Write", True),
        ("mcp__calc__*", "mcp__calc__add", True),
        ("mcp__calc__*", "mcp__calculus__add", False),
        ("mcp__calc", "mcp__calc__add", True),
        ("mcp__calc", "mcp__calculus__add", False),
        ("*", "Anything", True),
    ],
)
async def test_patterns_of_tools(pattern, name, fits):
    """A pattern may be a name, wildcards, alternatives, or a whole server as in the CLI's rules."""
    assert await verdict(allow(pattern), name) == ("allow" if fits else "none")
    assert await verdict(deny(pattern), name) == ("deny" if fits else "none")


async def test_patterns_of_arguments():
    """A denial finds its pattern anywhere; a permission must fit the whole argument."""
    no = deny("Bash", command=r"rm\s+-rf", reason="We keep our files.")
    assert await why(no, "Bash", command="cd /; rm  -rf x") == "We keep our files."
    assert await verdict(no, "Bash", command="ls") == "none"
    assert await verdict(no, "Bash") == "none"
    yes = allow("WebFetch", url=r"https://docs\.org/.*")
    assert await verdict(yes, "WebFetch", url="https://docs.org/a") == "allow"
    assert await verdict(yes, "WebFetch", url="http://evil/?https://docs.org/a") == "none"
    assert await verdict(yes, "WebFetch", url="https://docs.org/a\nhttp://evil") == "none"
    assert await verdict(yes, "WebFetch") == "none"


async def test_nested_arguments():
    """A dotted path goes into dicts and lists: one is enough to deny, all are needed to allow."""
    mails = {"message": {"to": [{"mail": "a@ours.org"}, {"mail": "b@evil.org"}]}}
    where = {"message.to.mail": r"[a-z]+@evil\.org"}
    assert await verdict(deny("send", where=where), "send", **mails) == "deny"
    assert await verdict(allow("send", where=where), "send", **mails) == "none"
    assert await verdict(allow("send", where={"message.to.mail": r".*\.org"}), "send", **mails) == "allow"
    assert await verdict(deny("send", message="evil"), "send", **mails) == "deny"
    assert await verdict(deny("send", count="^3$"), "send", count=3) == "deny"
    assert await verdict(deny("send", where={"a.b": "x"}), "send", **{"a.b": "x"}) == "deny"


@pytest.mark.parametrize("make", [allow, deny])
def test_a_policy_for_no_tool_is_a_mistake(make):
    """Nothing, or an empty name, is refused where it is written."""
    for tools in ((), ("",), ("Read|",)):
        with pytest.raises(ValueError, match="needs the name"):
            make(*tools)


async def test_the_first_opinion_counts():
    """Policies are called in order, flattened, with functions among them; no opinion at the end denies."""
    stack = deny("Write") | (lambda name, given, context: None) | allow("Read|Write")
    assert await verdict(stack, "Write") == "deny"
    assert await verdict(stack, "Read") == "allow"
    assert await verdict(stack, "Bash") == "none"
    assert await why(stack, "Bash") == "Bash was refused: no rule of this program allows the call."
    assert await verdict((lambda *_: None) | allow("Read"), "Read") == "allow"
    assert await verdict(stack.otherwise("allow"), "Bash") == "allow"
    assert await why(stack.otherwise("deny", "Ask Ada."), "Bash") == "Ask Ada."
    assert await verdict(stack.otherwise(allow("Bash")), "Bash") == "allow"
    with pytest.raises(ValueError, match="otherwise must be"):
        stack.otherwise("maybe")
    with pytest.raises(TypeError, match="at least one"):
        first_of()


def test_policies_show_what_they_are():
    """The repr of a stack reads like its code."""
    stack = deny("Bash", command="rm") | allow("Read") | budget(calls=3)
    assert repr(stack) == "deny('Bash', command='rm') | allow('Read') | budget(calls=3)"
    assert repr(with_timeout(allow("Read"), 2)) == "with_timeout(allow('Read'), 2)"


async def test_a_policy_that_fails_or_returns_nonsense_denies(caplog):
    """The model sees that the check failed, and the log names the policy; later policies are not called."""

    def broken(*_):
        raise KeyError("bug")

    async def nonsense(*_):
        return True

    for bad, words in ((broken, "permission check failed"), (nonsense, "no valid result")):
        assert words in await why(first_of(bad, allow("*")))
        assert bad.__name__ in caplog.text


async def test_budgets():
    """A budget limits calls, calls of a tool, or time; the clock starts at the first call."""
    calls = budget(calls=2)
    assert [await verdict(calls) for _ in range(3)] == ["none", "none", "deny"]
    each = budget(per_tool=1)
    assert [await verdict(each, name) for name in ("A", "B", "A")] == ["none", "none", "deny"]
    some = budget(per_tool={"mcp__m__*": 2})
    names = ("mcp__m__a", "Read", "mcp__m__b", "Read", "mcp__m__c")
    assert [await verdict(some, name) for name in names] == ["none"] * 4 + ["deny"]
    now = [100.0]
    timed = budget(seconds=5, clock=lambda: now[0])
    assert await verdict(timed) == "none"
    now[0] = 105.5
    assert "5 seconds" in await why(timed)
    with pytest.raises(ValueError, match="needs"):
        budget()


async def test_a_policy_that_takes_too_long():
    """After the timeout the other policy decides."""

    async def forever(*_):
        await anyio.sleep_forever()

    with anyio.fail_after(10):
        assert "within 0.01 seconds" in await why(with_timeout(forever, 0.01))
        assert await verdict(with_timeout(forever, 0.01, "allow")) == "allow"
        assert await verdict(ask(forever, timeout=0.01, otherwise=allow("Read"))) == "allow"
        assert await verdict(with_timeout(allow("Read"), 5)) == "allow"


async def test_asking():
    """An asker returns True, False, a whole result or no opinion; it may be sync or async."""

    async def no(*_):
        return False

    assert await verdict(ask(lambda *_: True)) == "allow"
    assert await why(ask(no)) == "The user does not allow this call."
    assert await why(ask(lambda *_: PermissionResultDeny(message="later"))) == "later"
    assert await verdict(ask(lambda *_: None)) == "none"
    assert await verdict(ask(lambda *_: "perhaps")) == "deny"


async def test_always_is_a_rule_for_the_session():
    """The CLI's suggestion is used for the session, else a rule for the tool; no rule if that is not allowed."""
    offered = PermissionUpdate(
        "addRules", [PermissionRuleValue("Bash", "ls:*")], "allow", destination="localSettings"
    )
    always = ask(lambda *_: "always")
    (update,) = (await always("Bash", {}, ToolPermissionContext(suggestions=[offered]))).updated_permissions
    assert (update.rules, update.destination) == (offered.rules, "session")
    assert offered.destination == "localSettings"
    wide = PermissionUpdate("setMode", mode="acceptEdits", destination="session")
    (update,) = (await always("Bash", {}, ToolPermissionContext(suggestions=[wide]))).updated_permissions
    assert update.rules == [PermissionRuleValue("Bash")]
    barred = ToolPermissionContext(suppress_always_allow_rule=True)
    assert (await always("Bash", {}, barred)).updated_permissions is None


async def test_remember():
    """A rule for the whole tool covers all its calls, another only the same call; True alone adds none."""
    asked, answer = [], ["always"]

    def asker(name, given, context):
        asked.append(given)
        return answer[0]

    policy = remember(ask(asker))
    assert (await policy("First", {}, EMPTY)).updated_permissions is None  # the CLI goes on asking
    asked.clear()
    for number in (1, 2):
        assert await verdict(policy, "T", n=number) == "allow"
    assert asked == [{"n": 1}]
    rule = PermissionUpdate("addRules", [PermissionRuleValue("Bash", "ls:*")], "allow")
    context = ToolPermissionContext(suggestions=[rule])
    for command in ("ls", "ls", "rm"):
        await verdict(policy, "Bash", context, command=command)
    assert asked[1:] == [{"command": "ls"}, {"command": "rm"}]
    answer[0] = True
    for _ in range(2):
        await verdict(policy, "U")
    assert asked[3:] == [{}, {}]
    mode = PermissionUpdate("setMode", mode="plan")
    moded = remember(lambda *_: PermissionResultAllow(updated_permissions=[mode]))
    assert (await moded("V", {}, EMPTY)).updated_permissions == [mode]
    assert await verdict(remember(deny("V")), "V") == "deny"


async def test_a_cancelled_call_does_not_wait_forever_for_its_audit_line(monkeypatch):
    """The line of a cancelled call is still written, but a function that hangs must not block the cancellation."""
    monkeypatch.setattr("toolwire.permissions.policies._WRITE_TIMEOUT", 0.05)
    deciding = anyio.Event()

    async def decide(*_):
        deciding.set()
        await anyio.sleep_forever()

    async def hang(_line):
        await anyio.sleep_forever()

    with anyio.move_on_after(10) as limit:
        async with anyio.create_task_group() as group:
            group.start_soon(audit(decide, hang), "Read", {}, EMPTY)
            await deciding.wait()
            group.cancel_scope.cancel()
    assert not limit.cancelled_caught


async def test_audit_lines(tmp_path):
    """One line for each decision, private, with as much of the input as wanted."""
    for kept in ("full", "keys", "digest"):
        file = tmp_path / kept
        policy = audit(deny("Write", reason="no") | allow("Read"), file, input=kept)
        context = ToolPermissionContext(tool_use_id="t1", raw={"session_id": "s1"})
        for name in ("Read", "Write", "Bash"):
            await policy.decide(name, {"path": "/pässword"}, context)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [(x["tool"], x["decision"], x.get("reason")) for x in lines] == [
            ("Read", "allow", None),
            ("Write", "deny", None if kept == "digest" else "no"),
            ("Bash", "none", None),
        ]
        assert [x.get("policy") for x in lines] == ["allow('Read')", "deny('Write')", None]
        assert all(x["session"] == "s1" and x["tool_use_id"] == "t1" and x["seconds"] >= 0 for x in lines)
        assert all(x["digest"].startswith("sha256:") and x["time"].endswith("+00:00") for x in lines)
        assert {"full": "input", "keys": "keys", "digest": "digest"}[kept] in lines[0]
        assert ("input" in lines[0]) == (kept == "full")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_no_record_no_call(tmp_path, caplog):
    """A call that cannot be recorded is denied, unless `on_error` is set; a denial stays the same."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for file in (tmp_path / "no" / "such", tmp_path, tmp_path / "pipe", tmp_path / "link"):
        assert "could not be recorded" in await why(audit(allow("Read"), file))
        assert await verdict(audit(allow("Read"), file, on_error="allow")) == "allow"
        assert await why(audit(deny("Read", reason="mine"), file)) == "mine"
        assert await verdict(audit(Policy(lambda *_: None), file)) == "deny"
    assert not (tmp_path / "elsewhere").exists()
    assert "could not be recorded" in caplog.text
    with pytest.raises(ValueError, match="input must be"):
        audit(allow("Read"), tmp_path, input="some")


async def test_as_a_hook():
    """Allow, deny, a changed input, an interrupt and no opinion become outputs of a PreToolUse hook."""
    updates = [PermissionUpdate("setMode", mode="plan")]
    results = {
        "yes": PermissionResultAllow(updated_input={"a": 1}, updated_permissions=updates),
        "no": PermissionResultDeny(message="why"),
        "stop": PermissionResultDeny(message="enough", interrupt=True),
    }
    seen = []

    def judge(name, given, context):
        seen.append((given, context.tool_use_id, context.agent_id, context.raw["session_id"]))
        return results.get(name)

    hook = as_hook(judge)

    async def hooked(name):
        event = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": {"x": 1}}
        return await hook({**event, "agent_id": "a", "session_id": "s"}, "t1", {"signal": None})

    yes = (await hooked("yes"))["hookSpecificOutput"]
    assert (yes["permissionDecision"], yes["updatedInput"]) == ("allow", {"a": 1})
    no = (await hooked("no"))["hookSpecificOutput"]
    assert (no["permissionDecision"], no["permissionDecisionReason"]) == ("deny", "why")
    stop = await hooked("stop")
    assert (stop["continue_"], stop["stopReason"]) == (False, "enough")
    assert await hooked("other") == {}
    assert seen[0] == ({"x": 1}, "t1", "a", "s")
    with pytest.raises(TypeError, match="PreToolUse"):
        await hook({"hook_event_name": "Stop"}, None, {})


async def test_the_answer_of_a_late_sync_asker_is_ignored():
    """It does not block the event loop, times out, and its late answer is ignored."""
    release, ticks = threading.Event(), []

    def slow(_name, _given, _context):
        release.wait(5)
        return True

    policy = ask(slow, timeout=0.5)
    async with anyio.create_task_group() as group:

        async def tick():
            while True:
                ticks.append(1)
                await anyio.sleep(0.005)

        group.start_soon(tick)
        with anyio.fail_after(3):
            answer = await policy("T", {}, ToolPermissionContext())
        group.cancel_scope.cancel()
    release.set()
    assert answer.behavior == "deny"
    assert len(ticks) > 2


async def test_the_decision_of_a_late_sync_policy_is_ignored():
    """A decision after the timeout is not used."""

    def slow(_name, _given, _context):
        time.sleep(0.05)
        return PermissionResultAllow()

    answer = await with_timeout(slow, 0.01)("T", {}, ToolPermissionContext())
    assert answer.behavior == "deny"


async def test_an_async_sink_gets_the_lines():
    """Calls that it cannot record are denied."""
    lines = []

    async def sink(line):
        await anyio.lowlevel.checkpoint()
        lines.append(line)

    async def broken(_line):
        raise OSError("full")

    allowed = allow("T")
    assert (await audit(allowed, sink)("T", {}, ToolPermissionContext())).behavior == "allow"
    assert len(lines) == 1
    assert (await audit(allowed, broken)("T", {}, ToolPermissionContext())).behavior == "deny"


async def test_a_digest_alone_reveals_nothing_about_the_arguments():
    """A reason may quote them, so it is left out too."""
    lines = []
    refusing = deny("T", reason="not /etc/passwd")
    await audit(refusing, lines.append, input="digest")("T", {"p": "/etc/passwd"}, ToolPermissionContext())
    assert "passwd" not in lines[0]


async def test_keys_inside_an_argument_are_matched():
    """A denial finds them, and a permission must match them."""
    context = ToolPermissionContext()
    denied = await deny("T", headers="X-Admin").decide("T", {"headers": {"X-Admin": "1"}}, context)
    assert denied is not None
    assert await allow("T", env="[a-z]*").decide("T", {"env": {"LD_PRELOAD": "x"}}, context) is None


async def test_a_changed_call_is_not_remembered():
    """The allowed call differs from the requested one."""
    asked = []

    def asker(_name, given, _context):
        asked.append(given)
        rule = PermissionUpdate("addRules", [PermissionRuleValue("T")], "allow", destination="session")
        return PermissionResultAllow(updated_input={"n": 1}, updated_permissions=[rule])

    policy = remember(ask(asker))
    for _ in range(2):
        answer = await policy("T", {"n": 500}, ToolPermissionContext())
        assert answer.updated_input == {"n": 1}
    assert len(asked) == 2


async def test_a_denied_server_may_have_underscores_in_its_name():
    """All its tools are denied; an allow pattern of that spelling means one tool."""
    context = ToolPermissionContext()
    assert await deny("mcp__my__server").decide("mcp__my__server__drop", {}, context) is not None
    assert await allow("mcp__my__server").decide("mcp__my__server__drop", {}, context) is None
