"""Finds the secrets of a profile: in the environment, then in a file that only its owner can read.

No error message contains a secret. Must not know how secrets are removed from texts.
"""

import base64
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire._support.secrets import SHORTEST
from toolwire.catalog.profile.tables import Secret, SecretPart, Settings
from toolwire.errors import CatalogError, UsageError

CREDENTIALS: Final = "TOOLWIRE_CREDENTIALS"
"""The variable with the path of a credentials file."""
_LARGEST_FILE: Final = 64 * 1024
_LONGEST_SECRET: Final = 8 * 1024
_log = logger_for("catalog.secrets")


@dataclass(frozen=True)
class Credentials:
    """The secrets of a profile, as they are sent."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str = field(default="", repr=False)
    """`user:password` for the proxy."""
    values: tuple[str, ...] = field(default=(), repr=False)
    """All texts that a `Scrubber` must remove: the bare secrets, and every form derived from them."""

    @property
    def digest(self) -> str:
        """A hash that identifies the payer, for file names and cache keys. Does not reveal the secrets."""
        return hashlib.sha256("\0".join(sorted(self.values)).encode()).hexdigest()


def find_credentials(
    profile: Settings, environ: Mapping[str, str], file: str | Path | None = None
) -> Credentials:
    """Find the profile's secrets. Raises CatalogError that names all missing ones, in one line.

    The environment has precedence over the file (TOML, or JSON by its suffix), and a secret's own variable over its
    parts.
    """
    sources = _Sources(environ, read_credentials_file(Path(file)) if file is not None else {})
    headers, query, values, missing = dict[str, str](), dict[str, str](), list[str](), list[Secret]()
    for secret in profile.secrets.values():
        value = sources.value_of(secret, values)
        if not value:
            missing.append(secret)
            continue
        sent = secret.template.replace("{value}", value)
        values += [value, sent]
        if secret.place == "query":
            query[secret.key] = sent
        elif secret.place == "basic":
            if ":" not in sent:
                raise UsageError(
                    f"{secret.variable} must be user:password for basic authentication, but has no colon: add the "
                    f"user, or set template to 'user:{{value}}' (profile {profile.name})"
                )
            encoded = _base64(sent)
            values += [encoded, f"Basic {encoded}"]
            headers["Authorization"] = f"Basic {encoded}"
        else:
            headers[secret.key] = sent
    proxy = ""
    if variable := profile.network.proxy_variable:
        proxy = sources.find(SecretPart(variable=variable))
        if not proxy:
            raise CatalogError(
                f"{variable} is not set: set it to user:password for the proxy (profile {profile.name})"
            )
        values += [proxy, _base64(proxy), proxy.partition(":")[2] or proxy]
    if missing:
        raise CatalogError(f"{_describe_missing(missing, sources, file)} (profile {profile.name})")
    _check_lengths(values)
    return Credentials(headers, query, proxy, tuple(dict.fromkeys(values)))


def _check_lengths(values: Iterable[str]) -> None:
    """Reject a secret that is too long to be searched for, and warn about one that is too short."""
    lengths = [len(each) for each in values]
    if max(lengths, default=0) > _LONGEST_SECRET:
        raise UsageError(f"a secret is too long: at most {_LONGEST_SECRET} characters are allowed")
    if min(lengths, default=SHORTEST) < SHORTEST:
        _log.warning(
            "a secret has less than %d characters: it is masked only where it is a whole word", SHORTEST
        )


class _Sources:
    """Looks up secrets: in the environment, then in a credentials file."""

    def __init__(self, environ: Mapping[str, str], stored: Mapping[str, Any]) -> None:
        self._environ = environ
        self._stored = stored

    def value_of(self, secret: Secret, values: list[str]) -> str:
        """Return the bare secret, or "". Adds the parts that it was made from to `values`."""
        if secret.variable and (value := self.find(secret, stored=False)):
            return value
        parts = [self.find(each, stored=False) for each in secret.parts]
        if not (parts and all(parts)):
            if secret.variable and (value := self.find(secret)):
                return value
            parts = [self.find(each) for each in secret.parts]
        if not (parts and all(parts)):
            return ""
        joined = ":".join(parts)
        # The user name is not a secret, and may be an ordinary word of a reply.
        values += [joined, *(parts[-1:] if secret.place == "basic" else parts)]
        return _base64(joined) if secret.encoding == "base64" else joined

    def find(self, part: SecretPart, *, stored: bool = True) -> str:
        """Return one value, or ""."""
        value = self._environ.get(part.variable, "").strip()
        if not value and stored:
            value = str(self._stored.get(part.file_name, "")).strip()
        if not value.isascii() or not value.isprintable() or len(value) > _LONGEST_SECRET:
            raise UsageError(
                f"{part.variable} is too long, or has characters that a header cannot contain: copy it again"
            )
        return value


def _describe_missing(missing: list[Secret], sources: _Sources, file: str | Path | None) -> str:
    """Describe which variables to set, or what to put into a file."""
    wanted: list[SecretPart] = []
    otherwise = ""
    for secret in missing:
        lacking = [each for each in secret.parts if not sources.find(each)]
        some_set = len(lacking) < len(secret.parts)  # then the user probably wants to set the other parts
        if secret.variable and not some_set:
            wanted.append(secret)
            if secret.parts:
                otherwise = f" (or {' and '.join(each.variable for each in secret.parts)})"
        else:
            wanted += lacking
    names = ", ".join(each.variable for each in wanted)
    inside = ", ".join(each.file_name for each in wanted)
    verb, them = ("is", "it") if len(wanted) == 1 else ("are", "them")
    also = f"in {file}" if file is not None else "in a credentials file"
    return f"{names} {verb} not set: set {them}{otherwise}, or put {inside} {also}"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def read_credentials_file(path: Path) -> dict[str, Any]:
    """Read a credentials file. It is checked after it was opened, so that it cannot be replaced in between."""
    try:
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path}: the credentials must be in a regular file")
            mode = stat.S_IMODE(status.st_mode)
            if os.name == "posix" and mode & 0o077:
                raise UsageError(
                    f"{path}: other users can read the credentials (mode {mode:04o}): chmod 600 {path}"
                )
            content = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path}: the credentials cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE:
        raise UsageError(f"{path}: a credentials file may have at most {_LARGEST_FILE // 1024} KiB")
    try:
        data = json.loads(content) if path.suffix.lower() == ".json" else tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        # Without the cause, which quotes the line, and so the secret.
        raise UsageError(
            f'{path}: not a valid credentials file: write lines such as api_key = "..." (TOML)'
        ) from None
    if not isinstance(data, dict) or not all(isinstance(each, (str, int)) for each in data.values()):
        raise UsageError(f'{path}: each credential must be a name with a text, such as api_key = "..."')
    return data
