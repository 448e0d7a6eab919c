"""The names of tools that several machines agree on, kept in a ledger that they share. Pure.

Which name an entry gets depends on which entries were there before, so two machines that were started at different
times would name them differently. The first name that any of them gave stays, as long as its entry is listed.
"""

import json
from collections.abc import Collection, Mapping

from toolwire._protocol.json_codec import dumps


def parse_names(document: str | None) -> dict[str, str]:
    """Read the names, by id of the entry; none from a document that is not ours."""
    try:
        found = json.loads(document or "{}")
    except ValueError:
        return {}
    whole = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if whole else {}


def merge_names(document: str | None, names: Mapping[str, str], listed: Collection[str]) -> str:
    """Return the document with our names added. Others keep theirs; names of entries that are gone are dropped."""
    kept = {id: name for id, name in parse_names(document).items() if id in listed}  # noqa: A001
    taken = set(kept.values())
    kept |= {id: name for id, name in names.items() if id not in kept and name not in taken}  # noqa: A001
    return dumps(kept, sort_keys=True).decode()
