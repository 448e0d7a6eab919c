"""Every input of the corpus keeps the promises of its target: seeds, and everything that fuzzing has found so far.

A finding goes into `corpus/TARGET/` under a name that says what was wrong. The name of an input that takes too
long when it is grown begins with `slow-`.
"""

import random
import time
from pathlib import Path

import pytest

from fuzz.findings import complaint_of, minimise
from fuzz.fuzz_targets import NAMES, load

CORPUS = Path(__file__).parent / "corpus"
INPUTS = [(file.parent.name, file) for file in sorted(CORPUS.glob("*/*"))]
LONG_ENOUGH = 20.0


@pytest.mark.parametrize(("target", "file"), INPUTS, ids=[f"{name}/{file.name}" for name, file in INPUTS])
def test_a_known_input_breaks_no_promise(target, file):
    """Each input is checked; one that once took too long also when it is grown to 64 KB."""
    found = load(target)
    data = file.read_bytes()
    found.check(data)
    if file.name.startswith("slow-"):
        start = time.thread_time()
        found.run(found.grow(data, 64 * 1024))
        assert time.thread_time() - start < LONG_ENOUGH


def test_every_target_has_a_corpus():
    """Every target has inputs, and every folder of inputs has a target."""
    assert {name for name, _ in INPUTS} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_mutation_is_another_input_that_breaks_nothing(name):
    """Most inputs come from mutations: they differ from the seeds, and are valid for the target."""
    target, rng = load(name), random.Random(1)
    seeds = [file.read_bytes() for each, file in INPUTS if each == name]
    made = [target.mutate(rng.choice(seeds), rng) for _ in range(80)]
    fresh = {data for data in made if data is not None} - set(seeds)
    assert len(fresh) > 15
    for data in sorted(fresh)[:20]:
        assert complaint_of(target.check, data) is None, data


def breaks_on_a_seven(data):
    """Raise for any input with a 7 in it."""
    if b"7" in data:
        raise ValueError("seven")


def test_a_finding_is_minimised():
    """Only the part that breaks the promise is left, for JSON and for anything else."""
    assert minimise(breaks_on_a_seven, b'{"a": [1, {"b": 7, "c": []}], "d": "long"}') == b"7"
    assert minimise(breaks_on_a_seven, b"no json, but 7 of it") == b"7"
    assert minimise(breaks_on_a_seven, b"fine") == b"fine"
