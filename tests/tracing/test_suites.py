"""The public test suites of tracing libraries have the same outcomes in alias mode as on the official package."""

from collections import Counter

import pytest

from tracing.suites import SUITES, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_suite_has_the_same_outcomes(suite, tmp_path, record_property, capsys):
    """Each test with another outcome is explained, and each explanation is still needed."""
    official = run(suite, tmp_path / "official", alias=False)
    alias = run(suite, tmp_path / "alias", alias=True)
    with capsys.disabled():
        print(f"\n{suite.name}: official {_count(official)}; alias {_count(alias)}")  # noqa: T201 - the counts
    assert Counter(official.values())["passed"] > 10
    different = {name: f"{outcome}, official {official.get(name)}" for name, outcome in alias.items()}
    different = {name: told for name, told in different.items() if official.get(name) != alias[name]}
    assert official.keys() == alias.keys()
    assert different.keys() == suite.explained.keys(), different


def _count(outcomes):
    counted = Counter(outcomes.values())
    return ", ".join(f"{counted[each]} {each}" for each in ("passed", "failed", "skipped"))
