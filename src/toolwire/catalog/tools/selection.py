"""Chooses which entries become tools, and under which names: filter, rename, group, namespace. Pure."""

import fnmatch
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from toolwire.catalog.tools.definitions import Definition, Entry, Repairs, Skipped, define
from toolwire.catalog.tools.names import slug


@dataclass(frozen=True)
class Selection:
    """The choice of tools: filters, new names, grouping.

    `include` and `exclude` are globs on the names of tools and on categories; a plain word in `include` may also be
    a part of a name. Case does not matter. `group` puts the category in front of names, `namespace` a text.
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
        """Define the tools of these entries. `known` has earlier names by id; `taken` are names in use.

        `repairs` keeps repaired schemas, as in `definitions.define`.
        """
        groups: dict[str, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(slug(entry.category or "") if self.group else "", []).append(entry)
        definitions: list[Definition] = []
        skipped: list[Skipped] = []
        before = dict(repairs or {})
        if repairs is not None:
            repairs.clear()
        for group, members in sorted(groups.items()):
            of_group = dict(before)
            good, bad = define(
                members,
                taken={*taken, *(each.name for each in definitions)},
                rename=self.rename,
                namespace="_".join(filter(None, (self.namespace, group))),
                known=known,
                separator=self.separator,
                repairs=of_group,
            )
            if repairs is not None:
                repairs.update(of_group)
            definitions += good
            skipped += bad
        return [each for each in definitions if self.wants(each)], skipped

    def wants(self, definition: Definition) -> bool:
        """True if the filters let a tool through."""
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
