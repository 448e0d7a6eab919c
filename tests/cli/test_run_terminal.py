"""The terminal of `toolwire run`, in a case that cannot be produced on a real one."""

import signal
import sys
import threading
from queue import SimpleQueue

import pytest

from toolwire.cli.run import Terminal
from toolwire.cli.shared.terminal_dialogs import on_ctrl_c


@pytest.mark.skipif(sys.platform == "win32", reason="signals of single threads")
@pytest.mark.timeout(30)
def test_ctrl_c_that_does_not_interrupt_the_wait_is_noticed():
    """As if it were pressed just before the wait begins: another thread gets the signal, and the wait continues."""
    terminal = object.__new__(Terminal)
    terminal._queue = SimpleQueue()
    with on_ctrl_c(lambda *_: terminal._queue.put("pressed")):
        timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
        timer.start()
        assert terminal._next() == "pressed"
        timer.join()
