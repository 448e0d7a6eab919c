"""The signature by which a broken promise is recognised, and the smallest input that breaks it."""

import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath

from fuzz.fuzz_targets.json_mutation import dump, load


def signature(error: BaseException) -> str:
    """Return an exception's kind and the function that raised it: the same for two inputs that show one bug."""
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if "site-packages" not in each.filename
    ]
    place = (
        f"{PurePath(frames[-1].filename).stem}.{frames[-1].name}.{frames[-1].lineno}" if frames else "nowhere"
    )
    return f"{type(error).__name__}-{place}"


def complaint_of(check: Callable[[bytes], None], data: bytes) -> str | None:
    """Return the signature of the promise that an input breaks; None if it breaks none."""
    try:
        check(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - any exception is a finding
        return signature(error)
    return None


def minimise(check: Callable[[bytes], None], data: bytes, most: int = 3_000) -> bytes:
    """Remove everything that is not needed for the same signature, in at most `most` attempts."""
    wanted = complaint_of(check, data)
    if wanted is None:
        return data
    attempts, smaller = 0, True
    while smaller and attempts < most:
        smaller = False
        for candidate in _smaller(data):
            attempts += 1
            if complaint_of(check, candidate) == wanted:
                data, smaller = candidate, True
                break
            if attempts >= most:
                break
    return data


def _smaller(data: bytes) -> Iterator[bytes]:
    yield from _smaller_json(data)
    size = len(data) // 2
    while size:
        for at in range(0, len(data), size):
            yield data[:at] + data[at + size :]
        size //= 2


def _smaller_json(data: bytes) -> Iterator[bytes]:
    """Yield the document without one of its parts, and only one of its parts."""
    try:
        document = load(data)
    except ValueError:
        return
    for path in _paths(document):
        copy = [load(data)]
        owner, key = copy, 0
        for step in path:
            owner, key = owner[key], step
        if isinstance(owner[key], dict | list):
            yield dump(owner[key])
        if path:
            del owner[key]
            yield dump(copy[0])


def _paths(document: object) -> Iterator[tuple[str | int, ...]]:
    stack: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    while stack:
        path, each = stack.pop(0)
        if path:
            yield path
        if isinstance(each, dict):
            stack += [((*path, key), value) for key, value in each.items()]
        elif isinstance(each, list):
            stack += [((*path, at), value) for at, value in enumerate(each)]
