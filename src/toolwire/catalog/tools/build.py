"""Chooses the entries that become tools, builds the tools, and compares them with the pins.

Owns filter, rename, group and namespace. Pure, except for one warning in `drop_masked`.
"""

import fnmatch
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire.catalog.money import dollars
from toolwire.catalog.tools.definitions import Definition, Entry, Repairs, Skipped, define, slug
from toolwire.catalog.tools.pins import Change, Pins, compare
from toolwire.tools.context import Context
from toolwire.tools.search import CATEGORY, make_search_hint
from toolwire.tools.tool import Tool

logger = logger_for("catalog")

_BLOCKED: Final = ("added", "changed", "price_up")


@dataclass(frozen=True)
class Selection:
    """Which entries become tools, and how they are named: filters, new names, grouping.

    `include` and `exclude` are globs for tool names and categories; a plain word in `include` also matches a part
    of a name. Case does not matter. `group` prefixes names with the category, `namespace` with a text.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    group: bool = False
    separator: str = ""

    def define(
        self,
        entries: Iterable[Entry],
        known: Mapping[str, str],
        taken: Collection[str] = (),
        repairs: Repairs | None = None,
    ) -> tuple[list[Definition], list[Skipped]]:
        """Define the tools for these entries. `known` has earlier names by id; `taken` are names in use.

        `repairs` caches repaired schemas, as in `definitions.define`.
        """
        repairs = {} if repairs is None else repairs
        groups: dict[str, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(slug(entry.category or "") if self.group else "", []).append(entry)
        definitions: list[Definition] = []
        skipped: list[Skipped] = []
        for group, members in sorted(groups.items()):
            good, bad = define(
                members,
                taken={*taken, *(each.name for each in definitions)},
                rename=self.rename,
                namespace="_".join(filter(None, (self.namespace, group))),
                known=known,
                separator=self.separator,
                repairs=repairs,
            )
            definitions += good
            skipped += bad
        listed = {entry.id for members in groups.values() for entry in members}
        for gone in repairs.keys() - listed:
            del repairs[gone]
        return [each for each in definitions if self.includes(each)], skipped

    def includes(self, definition: Definition) -> bool:
        """True if the filters include a tool."""
        about = (definition.name, definition.category or "")
        if any(_fits(each, pattern) for pattern in self.exclude for each in about):
            return False
        if not self.include:
            return True
        name = definition.name.casefold()
        return any(
            pattern.casefold() in name or any(_fits(each, pattern) for each in about)
            for pattern in self.include
        )


def _fits(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold())


@dataclass(frozen=True)
class Offer:
    """The tools, the skipped entries, and how the list differs from the pins or from the previous list."""

    definitions: tuple[Definition, ...]
    skipped: tuple[Skipped, ...]
    changes: tuple[Change, ...]
    entries: int
    """The number of entries."""


def build_offer(
    entries: Sequence[Entry],
    selection: Selection,
    before: Mapping[str, Definition],
    pins: Pins | None,
    *,
    taken: Collection[str],
    known: Mapping[str, str],
    agreed: Mapping[str, str],
    narrowed: Selection,
    repairs: Repairs,
) -> Offer:
    """Build the tools for these entries. `before` has the present ones by name; `taken` are names of other tools.

    `known` are names of an earlier run, by id; `agreed` are those that other machines use, which have precedence. A
    tool must match `narrowed` too. `repairs` caches repaired schemas for the next list.

    Entries that differ from the pins are not offered. An entry that was pinned under a name keeps it, so that a
    later entry with the same name cannot replace a tool.
    """
    present = {definition.id: name for name, definition in before.items()}
    names = {**known, **present, **agreed, **({} if pins is None else pins.names)}
    definitions, skipped = selection.define(entries, names, taken, repairs)
    definitions = [each for each in definitions if narrowed.includes(each)]
    changes: list[Change] = []
    if pins is not None:
        # An entry that the filters exclude was not removed from the list.
        unwanted = {each.id for each in entries} - {each.id for each in definitions}
        unwanted -= {each.id for each in skipped}
        pins = Pins({key: pin for key, pin in pins.tools.items() if key not in unwanted})
        changes = compare(definitions, pins)
        blocked = {change.id for change in changes if change.kind in _BLOCKED}
        definitions = [each for each in definitions if each.id not in blocked]
    elif before:
        changes = compare(definitions, Pins.of(before.values()))
    return Offer(tuple(definitions), tuple(skipped), tuple(changes), len(entries))


def drop_masked(entries: Sequence[Entry], mask: str) -> list[Entry]:
    """Leave out entries whose id contained one of our secrets: it was masked when the list was read.

    Such an id cannot be used to buy anything. `raw` is dropped too: it is as large as all other fields together.
    """
    whole = [replace(each, raw={}) for each in entries if not mask or mask not in each.id]
    if len(whole) < len(entries):
        logger.warning("%d entries are left out: their id contains a secret", len(entries) - len(whole))
    return whole


def build_tool(definition: Definition, buy: Callable[..., Awaitable[dict[str, Any]]]) -> Tool[Any]:
    """Build the tool that buys with `buy(definition, arguments, context)`."""

    async def handler(arguments: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        return await buy(definition, arguments, context)

    about = definition.description.partition("\n")[0]
    return Tool(
        name=definition.name,
        description=definition.description + _price_note(definition),
        input_schema=definition.schema,
        handler=handler,
        annotations={"readOnlyHint": False, "idempotentHint": False, "openWorldHint": True},
        meta={CATEGORY: definition.category} if definition.category else None,
        search_hint=make_search_hint(definition.name, definition.base, definition.category, about),
        text_mirrors_structured=True,
        repeatable=False,  # a paid call is never repeated automatically
    )


def _price_note(definition: Definition) -> str:
    """Return the sentence about the price for the description."""
    if definition.prices:
        known = [each for each in definition.prices.values() if each is not None]
        if known and min(known) < (highest := definition.price or max(known)):
            return f"\n\nCosts {dollars(min(known))} to {dollars(highest)} a call, by {definition.price_argument}."
    return "" if definition.price is None else f"\n\nCosts {dollars(definition.price)} a call."
