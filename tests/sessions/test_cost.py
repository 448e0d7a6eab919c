"""The cost of sessions: the CLI's own total, or else the tokens of each response; nothing is counted twice."""

import errno
import json
from datetime import UTC, datetime

import pytest

from shared.transcripts import SESSION, Writer, call, harbour, text
from toolwire import InMemorySessionStore, SessionStoreError, sessions
from toolwire.sessions import recorded
from toolwire.sessions.cost import UNKNOWN, TokenUsage

pytestmark = pytest.mark.anyio
USAGE = {"input_tokens": 10, "output_tokens": 5}
OTHER = "7f1c2d3e-0000-4000-8000-000000000002"


def note_total(writer, dollars, **models):
    """Add the entry that the CLI writes when it exits."""
    usage = {
        name: {"inputTokens": tokens, "outputTokens": 0, "costUSD": cost}
        for name, (tokens, cost) in models.items()
    }
    writer.note(type="cost-state", totalCostUSD=dollars, modelUsage=usage, hasUnknownModelCost=False)


def on_day(writer, day):
    """Give the last entry a time on this day."""
    writer.lines[-1]["timestamp"] = f"2026-03-{day:02}T12:00:00.000Z"


def test_the_last_total_of_the_cli_counts(tmp_path):
    """It covers all resumes of the session, so the usage of responses is not added to it."""
    writer = Writer()
    [at] = writer.respond(writer.ask(None, "one"), text("1"), usage=USAGE)
    note_total(writer, 0.25, opus=(1000, 0.25))
    writer.respond(writer.ask(at, "two"), text("2"), usage=USAGE)
    note_total(writer, 0.75, opus=(3000, 0.5), haiku=(10, 0.25))
    writer.write(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert cost.cost_usd == 0.75
    assert not cost.is_estimate
    assert {name: (usage.input_tokens, usage.cost_usd) for name, usage in cost.models.items()} == {
        "opus": (3000, 0.5),
        "haiku": (10, 0.25),
    }


def test_without_a_total_each_response_counts_once(tmp_path):
    """Each entry of a response repeats its usage. Subagents count too; the cost in dollars is unknown."""
    harbour(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert cost.cost_usd is None
    assert cost.is_estimate
    assert cost.models["claude-opus-5-5"] == TokenUsage(300, 60, 3000)
    assert cost.models["claude-haiku-5"] == TokenUsage(100, 20, 1000)
    assert cost.usage.tokens == 4480
    assert (cost.project, cost.tag, cost.title) == ("/work", "travel", "Harbour festival")


def test_what_came_after_the_last_total_is_said_to_be_missing(tmp_path):
    """As after a killed CLI: its tokens are counted, and the dollars are marked as an estimate."""
    writer = Writer()
    [at] = writer.respond(writer.ask(None, "one"), text("1"), usage=USAGE)
    note_total(writer, 0.25, opus=(1000, 0.25))
    writer.respond(writer.ask(at, "two"), text("2"), call("t"), usage=USAGE, model="opus")
    writer.write(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert (cost.cost_usd, cost.is_estimate) == (0.25, True)
    assert cost.models["opus"] == TokenUsage(1010, 5, cost_usd=0.25)


def test_dollars_are_shared_out_by_the_days_of_the_responses(tmp_path):
    """A session that was open for days does not count for the last day only, and rounding loses nothing."""
    writer = Writer()
    [at] = writer.respond(None, text("1"), usage={"input_tokens": 100})
    on_day(writer, 1)
    [at] = writer.respond(at, text("2"), usage={"input_tokens": 200})
    on_day(writer, 2)
    note_total(writer, 3.0, **{"claude-opus-5-5": (301, 3.0)})
    writer.respond(at, text("3"), usage={"input_tokens": 100})
    on_day(writer, 9)
    note_total(writer, 4.0, **{"claude-opus-5-5": (401, 4.0)})
    writer.write(tmp_path)
    report = sessions.cost_report(config_dir=tmp_path)
    days = {each.name: (each.usage.input_tokens, each.usage.cost_usd) for each in report.group("day")}
    assert days == {"2026-03-01": (100, 1.0), "2026-03-02": (201, 2.0), "2026-03-09": (100, 1.0)}
    assert report.total.usage == TokenUsage(401, cost_usd=4.0)
    some = sessions.cost_report(
        config_dir=tmp_path, since=datetime(2026, 3, 2, tzinfo=UTC), until=datetime(2026, 3, 2, 5, tzinfo=UTC)
    )
    assert (some.total.usage.cost_usd, some.since, some.until) == (2.0, "2026-03-02", "2026-03-02")
    assert some.sessions[0].cost_usd == 2.0


def test_a_total_that_falls_begins_anew(tmp_path):
    """The parts still add up to the CLI's last total."""
    writer = Writer()
    [at] = writer.respond(None, text("1"), usage=USAGE)
    note_total(writer, 3.0, opus=(1, 3.0))
    writer.respond(at, text("2"), usage=USAGE)
    note_total(writer, 1.0, opus=(1, 1.0))
    writer.write(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert (cost.cost_usd, cost.usage.cost_usd) == (1.0, 1.0)


def make_cli_fork(source, session):
    """Return a fork as the CLI makes it: the same uuids, without the total, which its own total will include."""
    writer = Writer(session)
    kept = [line for line in source.lines if "uuid" in line]
    writer.lines = [{**line, "sessionId": session} for line in kept]
    writer.number = source.number + 100
    return writer, kept[-1]["uuid"]


def test_a_fork_by_the_cli_does_not_count_its_source_again(tmp_path):
    """The CLI's total of a fork includes its source's cost, which the sum of a report must not contain twice."""
    source = Writer()
    [at] = source.respond(source.ask(None, "one"), text("1"), usage=USAGE)
    fork, last = make_cli_fork(source, OTHER)
    note_total(source, 1.0, opus=(100, 1.0))
    source.respond(at, text("went on"), usage=USAGE)
    note_total(source, 1.5, opus=(150, 1.5))
    fork.respond(last, text("2"), usage=USAGE)
    note_total(fork, 1.25, opus=(120, 1.25))
    source.write(tmp_path)
    fork.write(tmp_path)
    assert sessions.session_cost(OTHER, config_dir=tmp_path).cost_usd == 1.25
    report = sessions.cost_report(config_dir=tmp_path)
    costs = {each.session_id: (each.cost_usd, each.inherited_usd) for each in report.sessions}
    assert costs == {SESSION: (1.5, None), OTHER: (0.25, 1.0)}
    assert report.total.usage == TokenUsage(170, cost_usd=1.75)


def test_a_fork_of_ours_costs_nothing_by_itself(tmp_path):
    """The entries that a fork of `fork_session` copied were paid for in its source."""
    harbour(tmp_path)
    copy = sessions.fork_session(SESSION, config_dir=tmp_path)
    assert sessions.session_cost(copy.session_id, config_dir=tmp_path).usage == TokenUsage()
    report = sessions.cost_report(config_dir=tmp_path)
    assert [each.session_id for each in report.sessions] == [SESSION]


def test_groups(tmp_path):
    """A report is grouped by tag, model or project, with the most expensive group first."""
    for number, (dollars, tag, model) in enumerate(
        [(1.0, "a", "opus"), (3.0, "b", "opus"), (2.5, "a", "haiku")]
    ):
        writer = Writer(f"00000000-0000-4000-8000-00000000000{number}")
        writer.number = 100 * number
        writer.respond(writer.ask(None, "hi"), text("x"), usage=USAGE)
        note_total(writer, dollars, **{model: (10, dollars)})
        writer.note(type="tag", tag=tag)
        writer.write(tmp_path, f"-p{number}")
    seen = []
    report = sessions.cost_report(config_dir=tmp_path, on_progress=lambda *given: seen.append(given))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    groups = {
        by: [(each.name, each.sessions, each.usage.cost_usd) for each in report.group(by)]
        for by in ("tag", "model", "project")
    }
    assert groups["tag"] == [("a", 2, 3.5), ("b", 1, 3.0)]
    assert groups["model"] == [("opus", 2, 4.0), ("haiku", 1, 2.5)]
    assert groups["project"] == [("/work", 3, 6.5)]
    with pytest.raises(ValueError, match="by must be one of"):
        report.group("weather")


@pytest.mark.parametrize(
    "total",
    ["12", True, -1, None, float("inf"), float("nan"), 10**400, 1e300, [1]],
    ids=lambda value: str(value)[:8],
)
def test_a_total_that_is_none_is_not_believed(tmp_path, total):
    """The tokens are then those of the responses."""
    writer = Writer()
    writer.respond(writer.ask(None, "hi"), text("x"), usage=USAGE)
    writer.note(type="cost-state", totalCostUSD=total, modelUsage=[])
    writer.write(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert (cost.cost_usd, cost.is_estimate, cost.usage.tokens) == (None, True, 15)


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": -5},
        {"input_tokens": "7", "output_tokens": 2.5},
        [3],
        {"input_tokens": True},
        {"input_tokens": 10**4000},
    ],
    ids=range(5),
)
def test_usage_of_any_shape_is_read(tmp_path, usage):
    """Values that are not counts are ignored."""
    writer = Writer()
    writer.respond(writer.ask(None, "hi"), text("x"), usage=usage, model=["m"])
    writer.respond(None, text("y"), usage=USAGE, model=None)
    writer.lines[-1]["timestamp"] = "yesterday"
    writer.write(tmp_path)
    [part] = sessions.session_cost(SESSION, config_dir=tmp_path).parts
    assert (part.day, part.model, part.usage.tokens) == (UNKNOWN, UNKNOWN, 15)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "", None, 5])
def test_a_time_outside_of_the_calendar_is_an_unknown_day(tmp_path, when):
    """The tokens still count."""
    writer = Writer()
    writer.respond(None, text("x"), usage=USAGE)
    writer.lines[-1]["timestamp"] = when
    writer.write(tmp_path)
    report = sessions.cost_report(config_dir=tmp_path)
    assert [(each.name, each.usage.tokens) for each in report.group("day")] == [(UNKNOWN, 15)]
    some = sessions.cost_report(config_dir=tmp_path, since=datetime(2000, 1, 1, tzinfo=UTC))
    assert some.sessions == []


def test_dollars_of_no_model_are_not_lost(tmp_path):
    """Dollars that no model accounts for are listed under an unknown model, so that the sum is the total."""
    writer = Writer()
    writer.respond(writer.ask(None, "hi"), text("x"), usage=USAGE)
    note_total(writer, 2.0, opus=(1, 0.5))
    writer.write(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert cost.models[UNKNOWN].cost_usd == 1.5
    assert cost.usage.cost_usd == 2.0


async def test_a_store_has_the_same_costs(tmp_path):
    """This holds for one session and for a report."""
    harbour(tmp_path)
    store = InMemorySessionStore()
    await sessions.import_session_to_store(SESSION, store, config_dir=tmp_path)
    there = await sessions.session_cost_from_store(store, SESSION, "/work")
    assert there == sessions.session_cost(SESSION, config_dir=tmp_path)
    report = await sessions.cost_report_from_store(store, "/work")
    assert report.sessions == sessions.cost_report(config_dir=tmp_path).sessions
    assert not (await sessions.cost_report_from_store(store, "/elsewhere")).sessions


async def test_a_session_that_a_store_cannot_load_is_named(tmp_path):
    """It is in `unreadable`, and the others are in the report."""

    class Damaged(InMemorySessionStore):
        async def load(self, key):
            if key["session_id"] == OTHER:
                raise SessionStoreError("a line of the session store is damaged")
            return await super().load(key)

    store = Damaged()
    for session_id in (SESSION, OTHER):
        writer = Writer(session_id)
        writer.respond(writer.ask(None, "one"), text("1"), usage=USAGE)
        key = {"project_key": sessions.project_key_for_directory("/work"), "session_id": session_id}
        await store.append(key, writer.lines)
    report = await sessions.cost_report_from_store(store, "/work")
    assert ([each.session_id for each in report.sessions], report.unreadable) == ([SESSION], [OTHER])


def test_a_session_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    """The other sessions are still in the report."""
    path = harbour(tmp_path)
    path.with_name(f"{OTHER}.jsonl").write_bytes(path.read_bytes())
    opened = recorded.open_file

    def open_file(file):
        if file.session_id == OTHER:
            raise OSError(errno.EIO, "Input/output error")
        return opened(file)

    monkeypatch.setattr(recorded, "open_file", open_file)
    report = sessions.cost_report(config_dir=tmp_path)
    assert [each.session_id for each in report.sessions] == [SESSION]
    assert report.unreadable == [OTHER]


def test_costs_can_be_compared_and_written(tmp_path):
    """The parts can be written as JSON; a session that does not exist and an invalid id are errors."""
    harbour(tmp_path)
    cost = sessions.session_cost(SESSION, config_dir=tmp_path)
    assert json.dumps([vars(each.usage) for each in cost.parts])
    with pytest.raises(FileNotFoundError, match="not found"):
        sessions.session_cost(OTHER, config_dir=tmp_path)
    with pytest.raises(ValueError, match="Invalid session_id"):
        sessions.session_cost("x", config_dir=tmp_path)
