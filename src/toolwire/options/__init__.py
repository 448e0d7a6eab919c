"""The options of a conversation: their fields, their checks, and the command line built from them.

Each public name is loaded when it is first used.
"""

from toolwire import _NAMES, _find_names, _load_lazily

_load_lazily(globals(), _find_names(_NAMES, "options.", "tools.names"))
