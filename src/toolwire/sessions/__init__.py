"""Sessions: the history of past conversations, on disk and in stores. Each name is loaded when it is first used."""

from toolwire import _NAMES, _find_names, _load_lazily

_MORE = {"messages.system": "SessionKey", "options.types": "SessionStoreFlushMode"}

_load_lazily(globals(), _find_names(_NAMES, "sessions.") | _find_names(_MORE))
