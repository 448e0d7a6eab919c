"""What can be observed of a batch: metrics, and spans of the batch and of each run; and what they never contain."""

import asyncio

import pytest
from opentelemetry.trace import StatusCode
from prometheus_client import generate_latest

from shared.meters import points, reader
from shared.spans import exporter
from toolwire import ClaudeAgentOptions
from toolwire._support.tracing import VARIABLE
from toolwire.batch import Batch, Run
from toolwire.testing import ScriptedCLI, fail, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # DBOS leaves connections to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HIDDEN = "a word that nobody must know of"
COST = 0.00014  # of one scripted turn


def play(request):
    return fail(400) if "bad" in request.prompt else say(HIDDEN)


async def carry_out(tmp_path, name, keys, **settings):
    """Run a batch to its end, and return its Prometheus metrics: name and labels -> value."""
    cli = ScriptedCLI([play] * 100)
    batch = Batch(name, ClaudeAgentOptions(spawn_claude_code_process=cli), concurrency=2, **settings)

    @batch.task
    def prepare(item: str) -> Run:
        return Run(f"{item}: {HIDDEN}")

    async with asyncio.timeout(60), batch.open(tmp_path / "b", poll=0.05) as opened:
        await opened.add({key: key for key in keys})
        async for _ in opened.results():
            pass
        lines = generate_latest(opened.metrics).decode().splitlines()
    assert HIDDEN not in str(lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


async def test_metrics_count_runs_and_money(tmp_path):
    """There are metrics of this process and of the whole batch; keys of runs are not among the labels."""
    seen = await carry_out(tmp_path, "counted", ["a", "b", "bad"], budget="1", per_run="0.1")
    assert seen.pop('toolwire_batch_run_seconds_sum{batch="counted"}') > 0
    assert {
        name: value for name, value in seen.items() if "_created" not in name and "_bucket" not in name
    } == {
        'toolwire_batch_runs_total{batch="counted",outcome="done"}': 2,
        'toolwire_batch_runs_total{batch="counted",outcome="failed"}': 1,
        'toolwire_batch_cost_dollars_total{batch="counted"}': pytest.approx(2 * COST),
        'toolwire_batch_run_seconds_count{batch="counted"}': 3,
        'toolwire_batch_running{batch="counted"}': 0,
        **{
            f'toolwire_batch_state_runs{{batch="counted",state="{state}"}}': {"done": 2, "failed": 1}.get(
                state, 0
            )
            for state in ("waiting", "running", "done", "failed", "unknown", "refused", "cancelled")
        },
        'toolwire_batch_spent_dollars{batch="counted"}': pytest.approx(2 * COST),
        'toolwire_batch_reserved_dollars{batch="counted"}': 0,
    }


async def test_an_attempt_that_is_repeated_counts_each_time(tmp_path):
    """Each attempt is counted as a run: attempts take time and slots."""
    seen = await carry_out(tmp_path, "repeated", ["bad"], attempts=3)
    assert seen['toolwire_batch_runs_total{batch="repeated",outcome="failed"}'] == 3
    assert seen['toolwire_batch_state_runs{batch="repeated",state="failed"}'] == 1


async def test_opentelemetry_has_the_same_numbers(tmp_path):
    """OpenTelemetry is for programs that send metrics rather than have them scraped."""
    reader()
    await carry_out(tmp_path, "metered", ["a", "b", "bad"])
    runs = points("toolwire.batch.runs")
    assert runs[("batch", "metered"), ("outcome", "done")].value == 2
    assert runs[("batch", "metered"), ("outcome", "failed")].value == 1
    assert points("toolwire.batch.cost")[(("batch", "metered"),)].value == pytest.approx(2 * COST)
    assert points("toolwire.batch.run.duration")[(("batch", "metered"),)].count == 3


async def test_each_run_has_a_span_in_that_of_the_batch(tmp_path, monkeypatch):
    """It has key, attempt, outcome and cost, the conversation's span below it, and no text of prompt or answer."""
    monkeypatch.setenv(VARIABLE, "1")
    exporter().clear()
    await carry_out(tmp_path, "traced", ["a", "bad"])
    spans = exporter().get_finished_spans()
    (whole,) = [span for span in spans if span.name == "batch"]
    assert dict(whole.attributes) == {"toolwire.batch": "traced"}
    runs = {span.attributes["toolwire.batch.key"]: span for span in spans if span.name == "batch.run"}
    assert set(runs) == {"a", "bad"}
    for key, run in runs.items():
        assert run.parent.span_id == whole.context.span_id
        assert run.context.trace_id == whole.context.trace_id
        assert any(span.parent and span.parent.span_id == run.context.span_id for span in spans), key
    assert dict(runs["a"].attributes) == {
        "toolwire.batch": "traced",
        "toolwire.batch.key": "a",
        "toolwire.batch.attempt": 1,
        "toolwire.outcome": "done",
        "toolwire.cost_usd": pytest.approx(COST),
    }
    assert (runs["a"].status.status_code, runs["bad"].status.status_code) == (
        StatusCode.UNSET,
        StatusCode.ERROR,
    )
    assert runs["bad"].attributes["toolwire.outcome"] == "failed"
    assert HIDDEN not in "".join(span.to_json() for span in spans if span.name in ("batch", "batch.run"))


async def test_a_batch_has_no_spans_unless_they_are_asked_for(tmp_path, monkeypatch):
    """Setting up OpenTelemetry is not a request for spans."""
    monkeypatch.delenv(VARIABLE, raising=False)
    exporter().clear()
    await carry_out(tmp_path, "untraced", ["a"])
    assert exporter().get_finished_spans() == ()
