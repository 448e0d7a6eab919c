"""The mutants of `make mutants` still apply, and one that does not is an error."""

from pathlib import Path

import pytest

from mutants.applying import Definitions, Mutant, NoLongerAppliesError, apply
from mutants.bugs import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def source():
    return Definitions(ROOT / "src")


@pytest.fixture(scope="module")
def tests():
    return Definitions(ROOT / "tests", "test_*.py")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_applies_and_its_tests_are_there(mutant, source, tests):
    """Each mutant applies in one place and gives other, valid Python; its tests exist."""
    file, text = apply(mutant, source)
    assert text != file.read_text()
    compile(text, file.name, "exec")
    assert mutant.tests
    for each in mutant.tests:
        assert tests.test(each).startswith(str(ROOT / "tests"))


def test_there_are_twenty_at_least():
    """Each has a name of its own."""
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= 20


@pytest.fixture
def small(tmp_path):
    (tmp_path / "one.py").write_text(
        "class Box:\n    def open(self):\n        return 1\n\n\n"
        "def twice():\n    return 1 + 1\n\n\ndef same():\n    pass\n"
    )
    (tmp_path / "two.py").write_text("if True:\n    def same():\n        pass\n")
    return tmp_path


def mutant(symbol, find, put="2"):
    return Mutant("m", symbol, find, put, ("test_x",))


def test_a_mutant_changes_its_place_only(small):
    """A mutant is found by the name of its symbol, also when the file has moved."""
    for folder in (small, small / "deeper"):
        file, text = apply(mutant("Box.open", "1"), Definitions(folder if folder == small else small))
        assert text.startswith(
            "class Box:\n    def open(self):\n        return 2\n\n\ndef twice():\n    return 1 + 1\n"
        )
        if folder == small:
            (small / "deeper").mkdir()
            file.rename(small / "deeper" / "moved.py")
    assert file.name == "moved.py"


@pytest.mark.parametrize(
    ("symbol", "find", "reason"),
    [
        ("Box.shut", "1", "Box.shut is defined 0 times"),
        ("same", "pass", "same is defined 2 times"),
        ("twice", "1", "mutant m no longer applies: twice in one.py has 2 times '1'"),
        ("twice", "3", "mutant m no longer applies: twice in one.py has 0 times '3'"),
    ],
)
def test_a_mutant_that_no_longer_applies_is_an_error(small, symbol, find, reason):
    """The error says what is missing, or found more than once."""
    with pytest.raises(NoLongerAppliesError, match=reason):
        apply(mutant(symbol, find), Definitions(small))


def test_a_test_is_found_by_its_name(small):
    """A test is found inside and outside of classes; an unknown one is an error."""
    (small / "test_a.py").write_text("class TestBox:\n    def test_open(self):\n        pass\n")
    tests = Definitions(small, "test_*.py")
    assert tests.test("test_open") == f"{small / 'test_a.py'}::TestBox::test_open"
    with pytest.raises(NoLongerAppliesError, match="defined 0 times"):
        tests.test("test_shut")
