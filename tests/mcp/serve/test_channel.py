"""Notifications to all clients that have a session."""

import anyio
import pytest

from shared.waiting import eventually
from toolwire.mcp.serve import channel
from toolwire.mcp.serve.channel import ClientRegistry

pytestmark = pytest.mark.anyio

CHANGED = {"method": "notifications/tools/list_changed"}


class Client:
    """A client that accepts notifications only once `takes` is set, and fails then if `fails` is."""

    def __init__(self):
        self.takes, self.fails, self.asked, self.taken = anyio.Event(), False, 0, 0

    async def notify(self, _method, _params):
        self.asked += 1
        await self.takes.wait()
        if self.fails:
            raise ZeroDivisionError
        self.taken += 1


@pytest.fixture
def registry():
    """Return a registry with two clients: `quick` accepts everything at once, `stuck` nothing yet."""
    registry = ClientRegistry()
    registry.stuck, registry.quick = Client(), Client()
    registry.quick.takes.set()
    registry._connections |= {registry.stuck, registry.quick}
    return registry


async def test_a_client_that_takes_nothing_holds_no_other_up(registry, monkeypatch, caplog):
    """Its notifications are dropped after a timeout; later ones are sent to it again."""
    monkeypatch.setattr(channel, "_NOTIFY_TIMEOUT", 0.1)
    for _ in range(20):
        registry.broadcast(CHANGED)
    await eventually(lambda: registry.quick.taken == 20)
    await eventually(lambda: "did not receive" in caplog.text)
    assert (registry.stuck.asked, registry.stuck.taken) == (1, 0)
    registry.stuck.takes.set()
    await eventually(lambda: not registry._queues)
    registry.broadcast(CHANGED)
    await eventually(lambda: registry.stuck.taken == 1)


async def test_one_that_fails_is_logged_and_the_next_is_sent(registry, caplog):
    """The client keeps getting later notifications, since it may still be there."""
    registry.quick.fails = True
    registry.stuck.takes.set()
    for _ in range(3):
        registry.broadcast(CHANGED)
    await eventually(lambda: registry.quick.asked == 3)
    await eventually(lambda: caplog.text.count("could not be sent to a client") == 3)
