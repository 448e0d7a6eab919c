"""How results are judged, tested without any suite."""

import pytest

from conformance.judging import Suite, judge, scenarios
from conformance.referee import results
from conformance.suites import SUITES

LISTING = """\
Required for 2026-07-28 (3 scenarios, frozen; run at the 2026-07-28 wire):

Server scenarios (test against a server):
  - tools-list
  - tools-call [2025-11-25,2026-07-28]
  - skills [extension]

Client scenarios (test against a client):
  - initialize [2025-11-25]

Run and reported, but never scored:
  extension (2):
    - auth/dpop [client]
    - tasks-lifecycle [server]
  pending (2):
    - json-schema [server]
    - auth/later [client]
"""


def suite(**said):
    return Suite("2026-07-28", "package", ("list",), ("server",), **said)


def check(status, id="a", **more):
    return {"id": id, "name": id.upper(), "status": status, **more}


def test_scenarios_of_servers_are_listed_without_extensions():
    """Scenarios of clients and of extensions are left out, pending ones are not."""
    assert scenarios(LISTING) == ["tools-list", "tools-call", "json-schema"]


def test_what_passes_is_no_problem():
    """A passed check is no problem, and checks that only inform are not scored."""
    verdict = judge(suite(), ["s"], {"s": [check("SUCCESS"), check("INFO"), check("SKIPPED")]})
    assert verdict.problems == []
    assert verdict.sums() == "1 of 1 scored checks passed in 1 scenarios (1 INFO, 1 SKIPPED)"


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SOMETHING_NEW"])
def test_anything_else_is_a_problem(status):
    """A failure, a warning and an unknown status are problems, shown with the suite's message."""
    checks = [check("SUCCESS"), check(status, "b", errorMessage="Expected 400")]
    verdict = judge(suite(), ["s"], {"s": checks})
    assert verdict.problems == [f"s:b (B): {status} Expected 400"]


def test_a_pass_on_the_error_of_a_tool_is_a_problem():
    """Some checks accept any result: passing on a tool's error is a problem, unless the error is what is tested."""
    checks = [check("SUCCESS", details={"frames": [{"result": {"isError": True}}]})]
    assert judge(suite(), ["s"], {"s": checks}).problems == ["s:a (A): passed on a tool's error"]
    assert judge(suite(), ["tools-call-error"], {"tools-call-error": checks}).problems == []


def test_a_scenario_that_did_not_run_is_a_problem():
    """A scenario that did not run, and a suite without scenarios, are problems."""
    assert judge(suite(), ["s"], {}).problems == ["s: did not run"]
    assert judge(suite(), [], {}).problems == ["the suite lists no scenario"]


def test_a_scenario_without_a_scored_check_is_a_problem_unless_it_is_known():
    """A scenario without a scored check is a problem, and so is a wrong claim that it has none."""
    assert judge(suite(), ["s"], {"s": [check("INFO")]}).problems == ["s: has no scored check"]
    known = suite(without_checks={"s": "needs a session"})
    assert judge(known, ["s"], {"s": []}).problems == []
    for told in ({"s": [check("SUCCESS")]}, {}):
        assert "s: said to have no scored check, which is not so" in judge(known, ["s"], told).problems


def test_a_decision_against_a_check_holds_only_while_it_fails():
    """A decision for a check that passes, or was not made, is reported; other checks of the scenario must pass."""
    decided = suite(decided_against={"s:a": "because"})
    assert judge(decided, ["s"], {"s": [check("FAILURE"), check("SUCCESS", "b")]}).problems == []
    assert judge(decided, ["s"], {"s": [check("SUCCESS")]}).problems == [
        "s:a: decided against, but it passes"
    ]
    other = judge(decided, ["s"], {"s": [check("SUCCESS", "b")]})
    assert other.problems == ["s:a: decided against, but it was not checked"]
    assert judge(decided, ["s"], {"s": [check("FAILURE"), check("FAILURE", "b")]}).problems == [
        "s:b (B): FAILURE"
    ]


def test_the_table_has_a_line_for_each_check():
    """The table has the checks, and the sums below them."""
    lines = judge(suite(), ["s"], {"s": [check("SUCCESS"), check("WARNING", "long")]}).table().splitlines()
    assert lines[:3] == [
        "SCENARIO  CHECK        STATUS",
        "s         a (A)        SUCCESS",
        "s         long (LONG)  WARNING",
    ]
    assert lines[-1] == "1 of 2 scored checks passed in 1 scenarios (1 WARNING)"


def test_results_are_found_by_their_scenario(tmp_path):
    """A scenario's name may begin like another's, and other folders are ignored."""
    for name in (
        "server-ping-2026-01-01T00-00-00",
        "server-ping-2-x-2026-01-01",
        "server-tasks-2026",
        "else",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checks.json").write_text(f'[{{"id": "{name}"}}]')
    assert results(tmp_path, ["ping", "ping-2-x", "absent"]) == {
        "ping": [{"id": "server-ping-2026-01-01T00-00-00"}],
        "ping-2-x": [{"id": "server-ping-2-x-2026-01-01"}],
    }


def test_every_decision_has_a_reason():
    """No check is excluded without a reason."""
    for each in SUITES:
        assert all(reason.strip() for reason in {**each.decided_against, **each.without_checks}.values())
