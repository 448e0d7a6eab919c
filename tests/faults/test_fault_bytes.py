"""Any bytes and frames between those of a conversation, at any step: it goes on, and its result is right."""

import pytest

from faults.hostile_cli import BYTES, FRAMES, SPOILS, STEPS
from faults.stage import WAYS, name_of, one_by_one

CASES = [
    case
    for case in one_by_one((*BYTES, *FRAMES), STEPS)
    if not (case[0] == "closing" and case[1] in SPOILS)  # nothing comes after it
    and not (case[0] == "control" and case[2] == "query")  # `query` sends no such request
]


@pytest.mark.parametrize(("step", "fault", "way", "backend"), CASES, ids=name_of)
def test_a_fault_in_the_output_changes_nothing(stage, step, fault, way, backend):
    """No line is fatal: the messages come in order, and every response arrives."""
    outcome = stage.play(backend, WAYS[way], stage.options(step, fault))
    assert outcome.right, outcome
