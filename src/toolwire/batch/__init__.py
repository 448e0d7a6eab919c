"""Run Claude on many items, on one machine or several: `Batch`, `Run`, `Done`, `Progress`.

Needs the extra `batch` (`pip install 'toolwire[batch]'`). Each name is loaded when it is first used;
`import toolwire` loads none of this package.
"""

from importlib.util import find_spec

from toolwire import _load_lazily

_NAMES = {
    "batch.definition": "Batch Run",
    "batch.opened": "OpenBatch",
    "batch.states": "Done Progress",
}

if find_spec("dbos") is None:
    raise ImportError(
        "toolwire.batch needs DBOS, its engine, which is not installed: pip install 'toolwire[batch]'",
        name="dbos",
    )

_load_lazily(globals(), {name: module for module, names in _NAMES.items() for name in names.split()})
