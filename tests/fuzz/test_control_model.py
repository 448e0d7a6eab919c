"""The control protocol against its model: a few sequences, the same every time. `make fuzz` tries many more."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzz.control_model import ControlModel, ControlModelOnTrio

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # finding the shortest sequence takes minutes: `make fuzz` does that
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("model", [ControlModel, ControlModelOnTrio], ids=["asyncio", "trio"])
def test_whatever_the_two_sides_do_every_request_has_one_outcome(model):
    """No response is lost, doubled or swapped, and nothing is pending after the end."""
    run_state_machine_as_test(model, settings=SETTINGS)
