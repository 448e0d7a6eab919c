"""The official conformance suites against `examples/everything.py`, as `toolwire serve` serves it."""

import shutil

import pytest

from conformance.judging import judge, scenarios
from conformance.referee import BUILD, install, listing, play, results, served
from conformance.suites import SUITES


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Install the suites in the build folder."""
    install()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_scored_check_passes(suite, capsys):
    """Every scored check of the suite passes, except those that we decided against, which must fail."""
    folder = BUILD / suite.name
    shutil.rmtree(folder, ignore_errors=True)
    expected = scenarios(listing(suite))
    with served(folder / "server.log") as url:
        told = play(suite, url, folder / "results")
    (folder / "suite.log").write_text(told)
    verdict = judge(suite, expected, results(folder / "results", expected))
    with capsys.disabled():
        print(f"\n\nMCP {suite.name}\n{verdict.table()}")  # noqa: T201 - the table is why one runs it
        for key, reason in suite.decided_against.items():
            print(f"decided against {key}: {reason}")  # noqa: T201
    if verdict.problems:
        pytest.fail("\n".join(verdict.problems), pytrace=False)
    assert "Traceback" not in (folder / "server.log").read_text()
