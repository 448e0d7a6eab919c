"""`toolwire catalog check`, `schema` and `pin`: commands about the profile and the definitions of a catalogue."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolwire._support.terminal import plain
from toolwire.cli.shared.printing import show_json
from toolwire.cli.shared.target_options import JsonOption, connect, resolve_target, run
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.catalog.check import Checked
    from toolwire.catalog.http.requests import OutgoingRequest
    from toolwire.catalog.profile.model import Profile
    from toolwire.catalog.secrets import Credentials
    from toolwire.catalog.tools.definitions import Definition
    from toolwire.cli.shared.target import Target

_LONGEST: Final = 300


def check(
    profile: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="The file of a profile, or the name of a built-in one.")
    ],
    credentials: Annotated[
        Path | None,
        typer.Option(
            "--credentials",
            metavar="FILE",
            help="The credentials file. Default: $TOOLWIRE_CREDENTIALS.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Test a profile with its API: read the list, show how it is understood, report mistakes. Buys nothing.

    Examples:

      toolwire catalog check shop.toml

      toolwire catalog check agentpmt --json
    """
    from toolwire.catalog.profile.model import Profile  # noqa: PLC0415 - heavy
    from toolwire.catalog.secrets import find_credentials  # noqa: PLC0415
    from toolwire.catalog.server import CREDENTIALS  # noqa: PLC0415

    found = Profile.find(profile.removeprefix("catalog:")).resolved(os.environ)
    secrets = find_credentials(found, os.environ, credentials or os.environ.get(CREDENTIALS))
    checked = run(_check_profile, found, secrets)
    if json:
        show_json(_as_json(checked))
    else:
        _show(found, checked)
    if not checked.ok:
        raise typer.Exit(1)


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables instead.")] = False,
) -> None:
    """Print the JSON schema of profiles, for completion and checks in editors.

    Examples:

      toolwire catalog schema > profile.schema.json     (and in the profile: #:schema ./profile.schema.json)

      toolwire catalog schema --markdown
    """
    from toolwire.catalog.profile.model import json_schema  # noqa: PLC0415 - heavy
    from toolwire.catalog.profile.reference import reference  # noqa: PLC0415

    if markdown:
        typer.echo(reference(), nl=False)
    else:
        show_json(json_schema())


def pin(
    target: Annotated[str, typer.Argument(metavar="catalog:PROFILE", help="The catalogue.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, for serve --pins.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only show differences; exit with 1 if there are any.")
    ] = False,
) -> None:
    """Accept the tools and prices of a catalogue as they are now. Tools that differ later are not offered.

    Examples:

      toolwire catalog pin catalog:agentpmt pins.json

      toolwire catalog pin catalog:agentpmt pins.json --check

      toolwire serve catalog:agentpmt --pins pins.json
    """
    if not target.startswith("catalog:"):
        raise UsageError(f"only catalog:PROFILE targets can be pinned, and {target} is not one")
    from toolwire.catalog.tools.pins import Pins, compare  # noqa: PLC0415 - heavy

    definitions = run(_list_definitions, resolve_target(target, None))
    before = Pins.load(file)
    changes = compare(definitions, before)
    for change in changes if before.tools or check else ():
        typer.echo(plain(f"{change.name}: {change.kind.replace('_', ' ')}\n{change.diff}".rstrip()))
    if check:
        if changes:
            raise typer.Exit(1)
        typer.echo(f"{len(definitions)} tools, all as pinned.")
        return
    Pins.of(definitions).save(file)
    typer.echo(f"{len(definitions)} tools are pinned in {file}.")


async def _list_definitions(target: "Target") -> "list[Definition]":
    async with connect(target):
        return list(target.server.definitions.values())


async def _check_profile(profile: "Profile", secrets: "Credentials") -> "Checked":
    from toolwire._support.scrubber import Scrubber  # noqa: PLC0415
    from toolwire.catalog.check import check_profile  # noqa: PLC0415
    from toolwire.catalog.http.api import Api, Retry  # noqa: PLC0415

    async with Api(profile, secrets, retry=Retry(attempts=1)) as api:
        return await check_profile(profile, api, Scrubber(secrets.values))


def _show(profile: "Profile", checked: "Checked") -> None:
    from toolwire.catalog.check import describe_parameters, found_counts, price_words  # noqa: PLC0415
    from toolwire.catalog.money import dollars  # noqa: PLC0415

    _line(f"profile {profile.name} at {profile.base_url}")
    _heading("list")
    _show_request(checked.list_request)
    reading = checked.reading
    if reading is not None:
        counts = found_counts(checked)
        prices = checked.prices
        span = f" ({' to '.join(dict.fromkeys(map(dollars, (prices[0], prices[-1]))))})" if prices else ""
        _line(
            "  found: "
            + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
            + span
        )
        _line(f"  next page: {checked.next_page or 'none'}")
    if checked.entry is not None:
        entry, definition = checked.entry, checked.definition
        _heading("first entry")
        _line(f"  id: {entry.id}")
        _line(f"  tool: {definition.name if definition else 'none'}")
        _line(f"  description: {entry.description or 'none'}")
        _line(f"  price: {price_words(entry)}")
        _line(f"  category: {entry.category or 'none'}")
        parameters = describe_parameters(definition) if definition else []
        _line(f"  parameters: {', '.join(parameters) or 'none'}")
    if checked.call_request is not None:
        _heading("a call of it would be")
        _show_request(checked.call_request)
    if checked.balance is not None:
        _heading("balance")
        _line(f"  {dollars(checked.balance, 2)}")
    _heading("findings")
    for finding in checked.findings:
        _line(f"  {finding.level}: {finding.text}", longest=1_000)
    errors = sum(finding.level == "error" for finding in checked.findings)
    warnings = len(checked.findings) - errors
    verdict = (
        "the profile fits"
        if not checked.findings
        else f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
    )
    _line(f"  {verdict}; nothing was bought")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _heading(text: str) -> None:
    typer.echo()
    _line(text)


def _show_request(request: "OutgoingRequest") -> None:
    _line(f"  {request.method} {request.target}")
    for name, value in request.headers.items():
        _line(f"  {name}: {value}")
    if request.content:
        _line(f"  {request.content.decode()}")


def _line(text: str, longest: int = _LONGEST) -> None:
    text = " ".join(text.split()) if not text.startswith(" ") else f"  {' '.join(text.split())}"
    typer.echo(plain(text if len(text) <= longest else f"{text[: longest - 3]}..."))


def _as_json(checked: "Checked") -> dict[str, Any]:
    from toolwire.catalog.check import found_counts  # noqa: PLC0415
    from toolwire.catalog.money import PER_DOLLAR  # noqa: PLC0415

    def request(given: "OutgoingRequest | None") -> dict[str, Any] | None:
        if given is None:
            return None
        return {
            "method": given.method,
            "url": given.target,
            "headers": dict(given.headers),
            "body": given.content.decode() or None,
        }

    def money(micros: int | None) -> float | None:
        return None if micros is None else micros / PER_DOLLAR

    entry, definition = checked.entry, checked.definition
    return {
        "profile": checked.profile,
        "ok": checked.ok,
        "list": request(checked.list_request),
        "found": found_counts(checked),
        "next_page": checked.next_page or None,
        "entry": None
        if entry is None
        else {
            "id": entry.id,
            "tool": definition.name if definition else None,
            "description": entry.description,
            "price": money(entry.price),
            "prices": {value: money(price) for value, price in entry.prices.items()},
            "price_argument": entry.price_argument or None,
            "category": entry.category,
            "schema": definition.schema if definition else None,
        },
        "call": request(checked.call_request),
        "balance": money(checked.balance),
        "findings": [{"level": each.level, "text": each.text} for each in checked.findings],
    }
