"""The files of a project whose tools are the operations of an OpenAPI document."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import anyio

from toolwire.cli.new import FILES, project_files
from toolwire.cli.shared.target_options import OPENAPI, connect, resolve_target
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.openapi.server import OpenAPI

_TEMPLATES: Final = FILES | {
    "{{package}}.py": "openapi_server.py.txt",
    "tests/test_{{package}}.py": "openapi_test.py.txt",
    "README.md": "openapi_README.md.txt",
}
_MOST_TESTED: Final = 30
_UNSAFE: Final = re.compile(r"[^\w .,()-]")  # a title stands in a docstring, and is not ours


def document_files(
    package: str, source: str, include: Sequence[str], base_url: str | None
) -> tuple[dict[str, str], str]:
    """Return the files of the project by their path in it, and the name of a tool."""
    if not source.startswith(OPENAPI):
        raise UsageError(f"--from takes openapi:DOCUMENT, such as openapi:petstore.yaml, got {source!r}")
    target = resolve_target(source, None, list(include), openapi={"base_url": base_url, "name": package})
    server: OpenAPI = target.server
    anyio.run(_load, target)
    if not server.operations:
        raise UsageError(f"{source} has no operation that fits: see `toolwire check {source}`")
    content = (server.content or b"").decode("utf-8-sig", "replace")
    ending = PurePosixPath(source.partition("?")[0]).suffix.lower()
    document = "openapi.json" if content.lstrip().startswith("{") else f"openapi{ending or '.yaml'}"
    names = list(server.operations)
    base = base_url or (server.named_server if server.named_server and "://" in server.named_server else None)
    values = {
        "title": _UNSAFE.sub("", server.title_of_document).strip() or package,
        "document": document,
        "base_url": repr(base),
        "include": repr(list(include)),
        "tools": repr(names[:_MOST_TESTED]),
        "first": names[0],
        "extra": "[openapi]",
        "prompt": "What can you do?",
        "credentials": _write_credentials(server),
    }
    return {**project_files(package, _TEMPLATES, values), document: content}, names[0]


async def _load(target: "Target") -> None:
    async with connect(target):
        """Only to read it: `connect` waits for that, and raises if it cannot be used."""


def _write_credentials(server: "OpenAPI") -> str:
    variables = [each.variable for each in server.schemes.values() if each.kind != "unsupported"]
    if not variables:
        return "The API needs no credentials."
    return f"Credentials come from the environment: {', '.join(f'`{each}`' for each in variables)}."
