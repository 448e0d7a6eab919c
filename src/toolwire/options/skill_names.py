"""Which skill names can be named exactly in a `Skill(name)` permission rule.

The CLI splits its tool list at commas and blanks, knows no escapes there, and trims names. A name that
would be read as something else is refused, because the rule it makes would allow nothing, or something
else.
"""

import re
from collections.abc import Callable

_DELIMITER = "[(),\x00-\x1f\x7f-\x9f\ufeff]"
_SURROGATE = "[\ud800-\udfff]"

_PROBLEMS: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda name: not name.strip(), "a name is not empty"),
    (lambda name: re.search(_SURROGATE, name), "half a surrogate pair is in no skill's name"),
    (lambda name: name != name.strip(), "blanks around a name never match; remove them"),
    (
        lambda name: re.search(_DELIMITER, name),
        "parentheses, commas and control characters are in no skill's name",
    ),
    (lambda name: name == "*", 'for every skill, write skills="all"'),
    (
        lambda name: name.endswith((":*", " *")),
        "wildcards are not allowed; list each skill by its exact name",
    ),
    (lambda name: name.startswith("/"), "write the name without the slash of the command"),
    (lambda name: "\\\\" in name, "two backslashes in a row would be read as one"),
    (lambda name: name.endswith("\\"), "a backslash at the end would be read as an escape"),
)


def skill_name_problem(name: object) -> str | None:
    """Why this cannot be the name of a skill, or None if it can."""
    if not isinstance(name, str):
        return f"names are strings, this is a {type(name).__name__}"
    return next((problem for wrong, problem in _PROBLEMS if wrong(name)), None)
