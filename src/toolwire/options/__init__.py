"""The options of a conversation: what may be set, what is refused, and the command line made from them.

Each public name is loaded when it is first used.
"""

from toolwire import _NAMES, _find_names, _load_lazily

_load_lazily(globals(), _find_names(_NAMES, "options.", "tools.names"))
