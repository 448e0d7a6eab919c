"""Counts and durations for Prometheus."""

import pytest
from mcp.server import MCPServer

from toolwire import ToolServer
from toolwire.mcp.serve.metrics import Metrics
from toolwire.mcp.serve.start import host_for

OK, FAILED = {"content": []}, {"content": [], "isError": True}


def seen(metrics, method, name, result):
    """Record one request."""
    metrics.start()
    metrics.finish(method, name, result, 0.001)


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
    server = ToolServer("calc")
    server.tool(name="add")(lambda: None)
    metrics = Metrics(host_for(server))
    for name, result in (("add", FAILED), ("evil", FAILED), ("evil", OK)):
        seen(metrics, "tools/call", name, result)
    assert named(metrics) == {"add", ""}


@pytest.mark.parametrize("listed", [True, False])
def test_names_of_a_server_that_cannot_be_asked_are_learnt(listed):
    """A tool becomes a label once it was listed or called successfully, not if its calls only fail."""
    metrics = Metrics(host_for(MCPServer("other")))
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
    metrics = Metrics(host_for(MCPServer("other")))
    for number in range(1_200):
        seen(metrics, "tools/call", f"n{number}", OK)
    assert len(named(metrics)) == 1_001
