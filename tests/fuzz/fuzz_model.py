"""Tries the model of the control protocol with new sequences all the time: `fuzz_model.py SECONDS SEED`."""

import itertools
import logging
import sys
import time

import hypothesis.core
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzz.control_model import ControlModel, ControlModelOnTrio

_SETTINGS = settings(
    max_examples=25,
    stateful_step_count=80,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def main(seconds: float, seed: int) -> None:
    """Run on both event loops in turns. A failure is raised, with the shortest sequence that causes it."""
    logging.disable()
    end = time.monotonic() + seconds
    models = (ControlModel, ControlModelOnTrio)
    for number, model in enumerate(itertools.cycle(models), start=seed):
        if time.monotonic() >= end:
            break
        hypothesis.core.global_force_seed = number  # as `pytest --hypothesis-seed` does
        run_state_machine_as_test(model, settings=_SETTINGS)
    print(f"{sum(model.sequences for model in models)} sequences")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
