"""Hooks: your functions that the CLI calls on certain events. Each name is loaded when it is first used."""

from toolwire import _NAMES, _find_names, _load_lazily

_MORE = {"hooks.outcomes": "add_context allow ask block change_input deny replace_output stop"}

_load_lazily(globals(), _find_names(_NAMES, "hooks.") | _find_names(_MORE))
