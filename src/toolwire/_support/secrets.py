"""Recognises secrets by name, place and appearance, and removes them from everything that is shown.

Owns the names that indicate a secret, the places where a configuration keeps its secrets, and the values that no
log line, error text or span of this process may show. Must not know who logs or raises. This module decides what is
a secret; `_support.scrubber` finds a given one in every encoding.
"""

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolwire._support.words import late_pattern

REDACTED: Final = "<redacted>"
SHORTEST: Final = 6
"""A shorter value is not searched for: it would be found in the middle of ordinary words."""
_MOST_KNOWN: Final = 2_000  # values that are remembered, so that a long-running service stays fast
_DEEPEST: Final = 50
_LONG: Final = 16  # a user or a parameter in a URL with at least so many characters is taken for a token

# --- by name ----------------------------------------------------------------------------------------------


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS: Final = _set_of("""
    auth authorization bearer connectionstring cookie cookies cred credential credentials creds dsn headers
    jwt key keys otp pass passphrase passwd password passwords pat private pwd sas secret secrets sig signature
    token tokens webhook
    """)
_SECRET_ENDINGS: Final = tuple(
    _set_of("auth cookie credentials key pass passphrase passwd password pwd secret token")
)
_INNOCENT: Final = _set_of("""
    bypass compass donkey encompass hockey hotkey jockey monkey oldpwd overpass surpass trespass turkey underpass
    whiskey
    """)
_COUNTING: Final = _set_of("budget count limit max min num number total")
_COUNTED: Final = _COUNTING | {"context", "input", "output", "thinking"}
_PLACES: Final = _set_of("askpass dir file method mode path type uri url version")
_HARMLESS_HEADERS: Final = _set_of("""
    accept accept-charset accept-encoding accept-language cache-control connection content-encoding content-language
    content-length content-type date host mcp-protocol-version origin referer user-agent
    """)


def is_secret_name(name: str) -> bool:
    """Return True if a variable, header, field or query parameter of this name holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if words == ["pwd"] or words[-1:] == ["sock"]:  # these are names of places
        return False
    # A secret in a URL is recognised by its appearance.
    if words and words[-1] in _PLACES and "webhook" not in words:
        return False
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if (word == "tokens" and not _COUNTED.isdisjoint(words)) or (
            word == "token" and following in _COUNTING
        ):
            continue  # MAX_OUTPUT_TOKENS, TOKEN_LIMIT: these are numbers
        if (word, following) == ("pass", "through"):
            continue
        if (word, following) == ("connection", "string"):
            return True
        if word in _SECRET_WORDS or (word.endswith(_SECRET_ENDINGS) and word not in _INNOCENT):
            return True
    return False


def is_secret_place(name: str) -> bool:
    """Return True if a mapping of this name, in any case, holds an environment or headers: possible secrets."""
    return name.lower() in ("env", "headers")


# --- by appearance ----------------------------------------------------------------------------------------

# Each pattern begins where a run of its characters does: the search is linear, whatever the text.
_TOKENS: Final = late_pattern(
    r"sk-ant-[\w-]{6,}|(?<=Bearer )[\w.~+/=-]{6,}|(?<=Basic )[A-Za-z0-9+/=_-]{8,}"
    r"|(?<![\w-])(?:(?:sk|pk|rk)[-_][\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*)",
    re.IGNORECASE,
)
_USER: Final = re.compile(r"(?<=://)[^/\s?#\"'<>]*(?=@)")
_PARAMETER: Final = re.compile(r"(?<=[?&])([^=?&#\s\"'<>]++)=([^&#\s\"'<>]+)")
_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_SEGMENT: Final = re.compile(r"[\w%.~+=-]{20,}")
_UUID: Final = late_pattern(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_CHUNKS: Final = late_pattern(r"[A-Za-z0-9]{16,}")
_FLAG: Final = late_pattern(r"--?([A-Za-z][\w-]*)(=?)(.*)", re.DOTALL)


def _hide_by_appearance(text: str) -> str:
    """Hide well-known kinds of tokens, and in URLs the user and parameters named like a secret."""
    text = _TOKENS.sub(REDACTED, text)
    if "://" in text:
        text = _USER.sub(REDACTED, text)
    if "=" in text:
        text = _PARAMETER.sub(
            lambda found: f"{found[1]}={REDACTED}" if is_secret_name(found[1]) else found[0], text
        )
    return text


def _looks_random(text: str) -> bool:
    """Return True for text that was hardly chosen as a name: a UUID, or a long mix of letters and digits."""
    chunks = _CHUNKS.findall(text)
    return _UUID.search(text) is not None or any(
        not (chunk.isalpha() or chunk.isdecimal()) for chunk in chunks
    )


def _hide_in_url(found: re.Match[str]) -> str:
    """Hide everything in a URL that can be a secret. The rest identifies the server."""
    address, mark, rest = found[0].partition("?")
    if not mark:
        address, mark, rest = found[0].partition("#")
    scheme, slashes, place = address.partition("://")
    place = _USER.sub(REDACTED, f"{slashes}{place}")
    place = _SEGMENT.sub(lambda part: REDACTED if _looks_random(part[0]) else part[0], place)
    return f"{scheme}{place}{mark}{_PARAMETERS.sub(_hide_parameter, rest) if rest else ''}"


_PARAMETERS: Final = late_pattern(r"([^=&#]*)(=?)([^&#]*)")


def _hide_parameter(found: re.Match[str]) -> str:
    name, equals, value = found.groups()
    if equals:
        return f"{name}={REDACTED}" if value else found[0]
    return REDACTED if name else ""


# --- by place ---------------------------------------------------------------------------------------------


def hide(value: Any, *, _name: str = "", _depth: int = 0) -> Any:
    """Return a copy of a configuration that is safe to show: values that can be secrets become `<redacted>`.

    These are all values of mappings called `env` or `headers`, fields named like a secret, arguments after flags
    named like one, and in URLs the user, the parameters and parts of the path that look random.
    """
    if _depth > _DEEPEST:
        return REDACTED
    if isinstance(value, str):
        if value.lstrip()[:1] in ("{", "[") and (parsed := _parse_json(value)) is not None:
            shown = hide(parsed, _name=_name, _depth=_depth + 1)
            return value if shown == parsed else json.dumps(shown, ensure_ascii=False)
        shown = redact(_URL.sub(_hide_in_url, value))
        # Unchanged text is returned as the same object, which may be of a subclass with a repr of its own.
        return value if shown == value else shown
    if isinstance(value, Mapping):
        whole = is_secret_place(_name)
        return {
            key: REDACTED
            if _is_filled(each) and (whole or (is_secret_name(str(key)) and not isinstance(each, Mapping)))
            else hide(each, _name=str(key), _depth=_depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        shown = [hide(each, _depth=_depth + 1) for each in _redact_arguments(value)]
        return shown if isinstance(value, list) else tuple(shown)
    return value


def _is_filled(value: Any) -> bool:
    return not (value is None or value == "" or isinstance(value, bool))


def _redact_arguments(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts of a command line, with the values of flags that are named like a secret redacted."""
    after = False
    for value in values:
        flag = _FLAG.fullmatch(value) if isinstance(value, str) else None
        if flag is not None:
            secret = is_secret_name(flag[1]) or flag[1].lower() in ("h", "header")
            after = secret and not flag[2]
            yield f"{value[: -len(flag[3])]}{REDACTED}" if secret and flag[2] and flag[3] else value
        else:
            yield REDACTED if after and isinstance(value, str) else value
            after = False


def holds_secrets(value: Any) -> bool:
    """Return True if anything in a configuration would be hidden. JSON that cannot be read counts as a secret."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _parse_json(value)
        if value is None:
            return True
    return bool(hide(value) != value)


def secret_values(value: Any, *, _name: str = "", _depth: int = 0) -> Iterator[str]:
    """Yield the secrets in a configuration: in headers, environments, arguments and URLs."""
    if _depth > _DEEPEST:
        return
    if isinstance(value, str):
        parsed = _parse_json(value) if value.lstrip()[:1] in ("{", "[") else None
        if parsed is not None:
            yield from secret_values(parsed, _name=_name, _depth=_depth + 1)
        else:
            yield from _secrets_in_urls(value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            name = str(key)
            if isinstance(each, str):
                yield from _secrets_in_field(name, each, in_headers=_name.lower() == "headers")
            yield from secret_values(each, _name=name, _depth=_depth + 1)
    elif isinstance(value, list | tuple):
        for given, shown in zip(value, _redact_arguments(value), strict=True):
            if given is not shown:
                yield given if shown == REDACTED else given.partition("=")[2]
            yield from secret_values(given, _depth=_depth + 1)


def _secrets_in_field(name: str, value: str, *, in_headers: bool) -> Iterator[str]:
    is_header = in_headers and name.lower() not in _HARMLESS_HEADERS
    if is_secret_name(name) or (is_header and _is_distinctive(value)):
        yield value
        scheme, _, token = value.partition(" ")
        if scheme.lower() in ("basic", "bearer", "token"):
            yield token


def _is_distinctive(value: str) -> bool:
    """Return True if a header's value is long or unusual enough to be searched for in texts."""
    return len(value) >= _LONG or not value.isalpha()


def _secrets_in_urls(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    for user in _USER.findall(text):
        name, _, password = user.partition(":")
        yield from (
            each for each in (user, password, name if not password or len(name) >= _LONG else "") if each
        )
    for url in _URL.findall(text):
        parameters = _PARAMETER.findall(url)
        yield from (value for name, value in parameters if is_secret_name(name) or _looks_random(value))
        yield from filter(_looks_random, _SEGMENT.findall(url.partition("?")[0]))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- known values -----------------------------------------------------------------------------------------

_known: dict[str, None] = {}  # in the order in which they were last registered
_longest_first: tuple[str, ...] = ()
_lock = threading.Lock()


def keep_secret(values: Iterable[str]) -> None:
    """Keep these values out of all log lines, errors and spans. The latest 2,000 are remembered."""
    global _longest_first  # noqa: PLW0603 - one list for the process
    found = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
    with _lock:
        for form in found:
            _known.pop(form, None)
            _known[form] = None
        while len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]
        _longest_first = tuple(sorted(_known, key=len, reverse=True))  # one may begin with another


def _forms(value: str) -> Iterator[str]:
    """Yield the spellings of a value that logs and error texts use."""
    from urllib.parse import quote, unquote  # noqa: PLC0415 - a tenth of what importing the client costs

    yield from (value, value.strip(), json.dumps(value)[1:-1], repr(value)[1:-1])
    yield from (line for line in value.splitlines() if len(line) >= _LONG)  # logs are written line by line
    try:
        yield from (unquote(value), quote(value, safe=""))
    except UnicodeEncodeError:  # half a surrogate pair
        return


def redact(text: str) -> str:
    """Return the text without secrets: known values, and everything that looks like one."""
    for secret in _longest_first:
        if secret in text:
            text = text.replace(secret, REDACTED)
    return _hide_by_appearance(text)
