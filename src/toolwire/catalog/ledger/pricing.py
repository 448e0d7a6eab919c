"""Prices: the agreed price of an order, and how replies change it. Runs inside the transaction of the caller.

The first price in a list becomes the agreed price; a user must accept a higher one. A price is confirmed once a
reply has charged no more than that: until then it is only a claim of the list.

A rule about prices must consider every way in which one is agreed on: the first price in a list (`_first_price`),
the user's default (`agree`), the cost in a reply (`adopt_cost`), a user (`set_price`), and an earlier entry with
the same name (`_inherit` in `sql_ledger`).
"""

from dataclasses import dataclass

from toolwire.catalog.ledger import queries as query
from toolwire.catalog.ledger.transactions import Transaction
from toolwire.catalog.ledger.types import Order, PriceRaised, Row, format_dollars


@dataclass(frozen=True)
class Agreed:
    """The expected price of an order, None if unknown, and the most that was agreed on.

    `guessed`: it is the user's default price, which a cost in a reply replaces.
    """

    price: int | None
    most: int = 0
    confirmed: bool = False
    guessed: bool = False


def vouch(order: Order) -> Agreed:
    """Return the price that the caller itself sets, which need not be agreed on or confirmed."""
    return Agreed(order.price, order.price or 0, confirmed=True)


def agree(db: Transaction, order: Order) -> Agreed | PriceRaised:
    """Return what an order may cost. A price above the agreed one is recorded, and returned as an error."""
    pin = query.pin(db, order.entry_id, order.variant)
    if pin is None and (price := _first_price(db, order)) is not None:
        set_price(db, order.entry_id, order.variant, order.tool, price)
        pin = query.pin(db, order.entry_id, order.variant)
    if pin is None:
        if order.default_price is None:
            return Agreed(None)
        # A default price counts as confirmed once a reply came without a cost: there is no better information.
        known = query.is_unpriced(db, order.entry_id, order.variant)
        return Agreed(order.default_price, order.default_price, confirmed=known, guessed=True)
    if order.price is None:
        return Agreed(pin.price, pin.price, pin.confirmed)
    if (pin.tool, pin.offered) != (order.tool, order.price):
        _remember_offer(db, order.entry_id, order.variant, order.tool, order.price)
    if order.price > pin.price:
        label = f"{order.tool} ({order.variant})" if order.variant else order.tool
        return PriceRaised(
            f"the price of {label} rose from {format_dollars(pin.price)} to {format_dollars(order.price)}; nothing"
            f" was bought. A person can accept it: toolwire catalog accept {query.reference(db, order)}",
            pin.price,
            order.price,
        )
    return Agreed(order.price, pin.price, pin.confirmed)


def set_price(
    db: Transaction, entry_id: str, variant: str, tool: str, price: int, *, confirmed: bool = False
) -> None:
    """Set the agreed price, replacing any other. An empty tool name leaves the known name unchanged."""
    db.execute(
        "INSERT INTO prices (entry_id, variant, tool, price, offered, confirmed) VALUES (?1, ?2, ?3, ?4, ?4, ?5)"
        " ON CONFLICT (entry_id, variant) DO UPDATE SET tool = CASE WHEN ?3 = '' THEN prices.tool ELSE ?3 END,"
        " confirmed = CASE WHEN ?5 = 1 OR (prices.confirmed = 1 AND prices.price = ?4) THEN 1 ELSE 0 END,"
        " price = ?4, offered = ?4, charged = 0",
        (entry_id, variant, tool, price, confirmed),
    )
    db.execute("DELETE FROM unpriced WHERE entry_id = ? AND variant = ?", (entry_id, variant))


def confirm(db: Transaction, row: Row, cost: int) -> None:
    """Mark the agreed price as confirmed: a reply has charged no more than was reserved."""
    db.execute(
        "UPDATE prices SET confirmed = 1, lost = 0 WHERE entry_id = ? AND variant = ? AND price >= ?"
        " AND (confirmed = 0 OR lost > 0)",
        (row.entry_id, row.variant, cost),
    )


def record_lost_reply(db: Transaction, row: Row) -> int:
    """Mark the price as unconfirmed. Returns how many replies of the entry were lost in a row."""
    db.execute(
        "UPDATE prices SET confirmed = 0, lost = lost + 1 WHERE entry_id = ? AND variant = ?",
        (row.entry_id, row.variant),
    )
    return int(query.one(db, "SELECT coalesce(sum(lost), 0) FROM prices WHERE entry_id = ?", row.entry_id))


def clear_lost_replies(db: Transaction, entry_id: str) -> None:
    """Reset the count of lost replies of an entry: a user has looked at it."""
    db.execute("UPDATE prices SET lost = 0 WHERE entry_id = ?", (entry_id,))


def adopt_cost(db: Transaction, row: Row, cost: int) -> None:
    """Make the cost in a reply the agreed price, for a call whose price was not known before.

    If there is an agreed price by now, that stays, and the cost is kept as an offer that a user can accept.
    """
    if query.pin(db, row.entry_id, row.variant) is None:
        set_price(db, row.entry_id, row.variant, row.tool, cost, confirmed=True)
    else:  # a user, or another call, has set it meanwhile
        _remember_offer(db, row.entry_id, row.variant, row.tool, cost)
        confirm(db, row, cost)


def record_overcharge(db: Transaction, row: Row, cost: int) -> None:
    """Record a charge above the reserved amount, for a user to accept. The price is no longer confirmed."""
    db.execute(
        "INSERT INTO prices (entry_id, variant, tool, price, offered, charged) VALUES (?1, ?2, ?3, ?4, ?4, ?5)"
        " ON CONFLICT (entry_id, variant) DO UPDATE SET confirmed = 0,"
        " charged = CASE WHEN prices.charged > ?5 THEN prices.charged ELSE ?5 END",
        (row.entry_id, row.variant, row.tool, row.reserved, cost),
    )


def mark_unpriced(db: Transaction, row: Row, now: float) -> None:
    """Record that the price is in neither the list nor a reply."""
    db.execute(
        "INSERT INTO unpriced (entry_id, variant, tool, at) VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT (entry_id, variant) DO UPDATE SET tool = ?3, at = ?4",
        (row.entry_id, row.variant, row.tool, now),
    )


def _first_price(db: Transaction, order: Order) -> int | None:
    """Return the first agreed price of an entry; None if no price is known.

    A list that changes from one price to a price per action, or back, cannot raise the price by that.
    """
    if order.variant:
        bound = query.one(db, "SELECT price FROM prices WHERE entry_id = ? AND variant = ''", order.entry_id)
    else:
        bound = query.one(db, "SELECT max(price) FROM prices WHERE entry_id = ?", order.entry_id)
    known = [each for each in (order.price, bound) if each is not None]
    return min(known) if known else None


def _remember_offer(db: Transaction, entry_id: str, variant: str, tool: str, price: int) -> None:
    db.execute(
        "UPDATE prices SET tool = ?, offered = ? WHERE entry_id = ? AND variant = ?",
        (tool, price, entry_id, variant),
    )
