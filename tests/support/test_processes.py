"""Processes of this machine: whether they run, and whether a pid still belongs to the same process."""

import os
import subprocess
import sys

import pytest

from toolwire._support.processes import PROC, is_running, read_state

pytestmark = pytest.mark.skipif(not PROC.exists(), reason="only Linux tells")


def test_the_start_of_a_process_stays_the_same():
    """The start time thus tells processes with the same pid apart."""
    state, start = read_state(os.getpid())
    assert state in "RS"
    assert start.isdecimal()
    assert read_state(os.getpid())[1] == start


@pytest.mark.process
def test_a_process_that_ended_has_neither():
    """State and start are empty, and it does not count as running."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert read_state(process.pid) == ("", "")
    assert not is_running(process.pid)
