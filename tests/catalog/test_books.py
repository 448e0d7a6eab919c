"""What the ledger is told happens once, whoever waits for it and whatever it raises."""

import threading

import anyio
import pytest

from toolwire.catalog.ledger.async_ledger import Books
from toolwire.errors import CatalogError

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


class Acts:
    """Counts what was done and undone."""

    def __init__(self, gate=None):
        self.done = 0
        self.undone = []
        self._gate = gate

    def work(self):
        self.done += 1
        if self._gate is not None:
            self._gate.wait(10)
        return "booked"

    def quit(self):
        self.done += 1
        raise SystemExit("the ledger wants to go home")


async def test_an_act_that_wants_an_end_is_not_repeated():
    """It is raised to whoever asked, as any error, and the act was tried once."""
    acts, books = Acts(), Books(None)
    with pytest.raises(SystemExit):
        await books.tell(acts.quit, undo=acts.undone.append)
    await books.ask(int)  # acts are done in their order
    await books.ask(int)
    assert (acts.done, acts.undone) == (1, [])


async def test_an_act_that_wants_an_end_when_nobody_waits_ends_nothing(caplog):
    """The event loop goes on, and the log has it."""
    gate, acts = threading.Event(), Acts()
    books = Books(None, patience=0.01)

    def late():
        gate.wait(10)
        acts.quit()

    with pytest.raises(CatalogError, match="has not answered"):
        await books.tell(late, undo=acts.undone.append)
    gate.set()
    while "go home" not in caplog.text:
        await anyio.sleep(0.001)
    assert (acts.done, acts.undone) == (1, [])


async def test_what_comes_too_late_is_undone_once():
    """The caller has lost patience: what only it could have used is given back."""
    gate = threading.Event()
    acts, books = Acts(gate), Books(None, patience=0.01)
    with pytest.raises(CatalogError, match="has not answered"):
        await books.tell(acts.work, undo=acts.undone.append)
    gate.set()
    while not acts.undone:
        await anyio.sleep(0.001)
    await books.ask(int)
    assert (acts.done, acts.undone) == (1, ["booked"])
