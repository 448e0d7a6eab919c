"""Counts and durations for Prometheus."""

import pytest

from toolwire.mcp.serve.metrics import Metrics

OK, FAILED = {"content": []}, {"content": [], "isError": True}


def seen(metrics, method, name, result):
    """Record one request."""
    with metrics.observe(method, name) as request:
        request.result(result)


def named(metrics):
    """Return the tools that are labels."""
    lines = metrics.text().decode().splitlines()
    return {
        line.partition('tool="')[2].partition('"')[0]
        for line in lines
        if line.startswith("toolwire_tool_calls_total{")
    }


def test_clients_cannot_make_up_labels():
    """The name of an unknown tool does not become a label."""
    metrics = Metrics(lambda: {"add"})
    for name, result in (("add", FAILED), ("evil", FAILED), ("evil", OK)):
        seen(metrics, "tools/call", name, result)
    assert named(metrics) == {"add", ""}


@pytest.mark.parametrize("listed", [True, False])
def test_names_of_a_server_that_cannot_be_asked_are_learnt(listed):
    """A tool becomes a label once it was listed or called successfully, not if its calls only fail."""
    metrics = Metrics(lambda: None)
    if listed:
        seen(metrics, "tools/list", "", {"tools": [{"name": "add"}]})
    else:
        seen(metrics, "tools/call", "add", OK)
    for number in range(3):
        seen(metrics, "tools/call", f"evil{number}", FAILED)
    seen(metrics, "tools/call", "add", FAILED)
    assert named(metrics) == {"add", ""}


@pytest.mark.slow
def test_a_server_that_answers_to_every_name_fills_nothing_up():
    """If calls of any name succeed, the number of labels is still limited."""
    metrics = Metrics(lambda: None)
    for number in range(1_200):
        seen(metrics, "tools/call", f"n{number}", OK)
    assert len(named(metrics)) == 1_001
