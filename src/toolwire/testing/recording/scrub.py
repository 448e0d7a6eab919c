"""Takes secrets out of a recording, and compares what was scrubbed with what comes at a replay.

Owns which values of an environment are scrubbed and the mask. The forms in which a secret is found are those of
`_support.scrubber`, the names that give one away those of `_support.secrets`. Must not know of files or processes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from toolwire._support.scrubber import Scrubber
from toolwire._support.secrets import SHORTEST, is_secret_name, is_secret_place, secret_values

SCRUBBED: Final = "<scrubbed>"


class RecordingScrubber(Scrubber):
    """Replaces secrets by `<scrubbed>`, in texts and anywhere in JSON values, keys included.

    Values of fewer than 6 characters are *not* scrubbed: a variable such as `MY_KEY=1` would make every number 1
    disappear. In mappings named `env` or `headers` every value with the name of a secret is replaced, known or not.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__([each for each in secrets if len(each.strip()) >= SHORTEST], masks=[SCRUBBED])

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets; a number that holds one becomes the text `<scrubbed>`."""
        return self.data(_without_named(value))

    def argument(self, argument: str) -> str:
        """Return an argument of a command line, which may be JSON itself, without secrets."""
        if argument.startswith("{"):
            try:
                return json.dumps(self.value(json.loads(argument)), ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        return self.text(argument)


def _without_named(value: Any, name: str = "") -> Any:
    """Replace the values of headers and variables that are named like a secret."""
    if isinstance(value, dict):
        place = is_secret_place(name)
        return {
            key: SCRUBBED if place and is_secret_name(str(key)) else _without_named(each, str(key))
            for key, each in value.items()
        }
    return [_without_named(each) for each in value] if isinstance(value, list | tuple) else value


def secrets_of(*environments: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables with names like API_KEY, and secrets in URLs, as they are and decoded."""
    for environment in environments:
        for value in secret_values({"env": environment}):
            yield value
            if (decoded := unquote(value)) != value:
                yield decoded


def same(expected: Any, came: Any) -> bool:
    """Compare two values; a scrubbed secret equals anything."""
    match expected:
        case str() if SCRUBBED in expected:
            pattern = ".*".join(map(re.escape, expected.split(SCRUBBED)))
            return expected == SCRUBBED or (
                isinstance(came, str) and bool(re.fullmatch(pattern, came, re.DOTALL))
            )
        case dict():
            if not isinstance(came, dict) or len(expected) != len(came):
                return False
            if any(SCRUBBED in key for key in expected):
                pairs = zip(expected.items(), came.items(), strict=True)
                return all(same(key, k) and same(value, v) for (key, value), (k, v) in pairs)
            return all(key in came and same(value, came[key]) for key, value in expected.items())
        case list():
            return isinstance(came, list) and len(expected) == len(came) and all(map(same, expected, came))
    return bool(expected == came)
