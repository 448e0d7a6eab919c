"""Messages: the objects that a conversation yields. Each name is loaded when it is first used."""

from toolwire import _NAMES, _find_names, _load_lazily

_MORE = {"messages.conversation": "EXTRA_MESSAGES"}

_load_lazily(globals(), _find_names(_NAMES, "messages.") | _find_names(_MORE))
