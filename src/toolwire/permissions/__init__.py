"""Permissions: which tool calls are allowed. Ready-made policies are in `toolwire.permissions.policies`.

Each name is loaded when it is first used.
"""

from toolwire import _NAMES, _find_names, _load_lazily

_MORE = {"messages.system": "PermissionMode"}  # the CLI reports it in its messages

_load_lazily(globals(), _find_names(_NAMES, "permissions.") | _find_names(_MORE))
