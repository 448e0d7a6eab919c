"""`toolwire catalog`: the command group.

`spend`, `reconcile` and `accept` are about the ledger; `check`, `schema` and `pin` are about the profile and the
definitions of a catalogue.
"""

import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolwire._support.words import count, plain
from toolwire.cli.shared.app import make_app
from toolwire.cli.shared.printing import one_line, show_json
from toolwire.cli.shared.quantities import parse_time
from toolwire.cli.shared.target_options import CATALOG, JsonOption, LedgerOption, connect, resolve_target, run
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.catalog.check import Checked
    from toolwire.catalog.http.requests import OutgoingRequest
    from toolwire.catalog.ledger.opening import Address
    from toolwire.catalog.ledger.sql_ledger import Ledger
    from toolwire.catalog.ledger.types import Row
    from toolwire.catalog.profile.model import Profile
    from toolwire.catalog.secrets import Credentials
    from toolwire.catalog.tools.definitions import Definition
    from toolwire.catalog.tools.pins import Pins
    from toolwire.cli.shared.target import Target


_LONGEST: Final = 300


class By(StrEnum):
    """How the sums are grouped."""

    TOOL = "tool"
    DAY = "day"
    SESSION = "session"
    STATE = "state"


def spend(  # noqa: PLR0917 - typer takes them by position
    ledger: LedgerOption = None,
    by: Annotated[
        By | None, typer.Option(help="Group the sums by this. Default: by day, then by tool.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="12h, 7d, 4w (today included), or 2026-11-01. Days are in UTC."),
    ] = None,
    per_day: Annotated[
        str | None, typer.Option(metavar="DOLLARS", help="Show what is left of this budget today.")
    ] = None,
    total: Annotated[
        str | None, typer.Option(metavar="DOLLARS", help="Show what is left of this budget in total.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the costs: settled, reserved, and unknown.

    Examples:

      toolwire catalog spend

      toolwire catalog spend --by tool --since 7d

      toolwire catalog spend --per-day 5 --total 100

      toolwire catalog spend --json --ledger ./ledger.db    # needs an account
    """
    from toolwire.cli import catalog_report  # noqa: PLC0415 - heavy

    limits = {"day": _parse_money("--per-day", per_day), "total": _parse_money("--total", total)}
    now = datetime.now(UTC)
    start = None if since is None else parse_time("--since", since, now).timestamp()
    opened = _open_ledger(ledger)
    if opened is None:
        report = catalog_report.Report(str(_ledger_address(ledger)), start)
    else:
        with opened:
            report = catalog_report.read_report(
                opened, (by.value,) if by else ("day", "tool"), start, limits, now
            )
    if json:
        show_json(report.as_json())
    else:
        catalog_report.show_report(report)


def reconcile(  # noqa: PLR0917
    call: Annotated[
        str | None, typer.Argument(metavar="ID", help="The call, or the first characters of its id.")
    ] = None,
    ledger: LedgerOption = None,
    charged: Annotated[
        bool | None, typer.Option("--charged/--not-charged", help="The outcome, as the seller reports it.")
    ] = None,
    amount: Annotated[
        str | None, typer.Option(metavar="DOLLARS", help="The cost. Default: the reserved amount.")
    ] = None,
    all_not_charged: Annotated[
        bool, typer.Option("--all-not-charged", help="Release the money reserved for all unknown calls.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the calls whose response was lost, or record the outcome of one.

    Their money stays reserved until the outcome is recorded.

    Examples:

      toolwire catalog reconcile

      toolwire catalog reconcile 3fa9 --charged --amount 0.01    # needs an account

      toolwire catalog reconcile 3fa9 --not-charged    # needs an account
    """
    from toolwire.cli import catalog_report  # noqa: PLC0415 - heavy

    cost = _parse_money("--amount", amount)
    _check_options(call, charged, cost, all_not_charged)
    opened = _open_ledger(ledger)
    if opened is None:
        if call is not None:
            raise UsageError(f"there is no ledger at {_ledger_address(ledger)}")
        catalog_report.show_calls([], json)
        return
    with opened:
        opened.recover()  # calls that a crash left open become unknown
        unknown = opened.rows(states=["unknown"])
        if call is None and not all_not_charged:
            catalog_report.show_calls(unknown, json)
            return
        chosen = unknown if call is None else [_find_call(opened, unknown, call)]
        for row in chosen:
            opened.resolve(row.id, bool(charged), cost)
        picked = {row.id for row in chosen}
        catalog_report.show_resolved([row for row in opened.rows() if row.id in picked], json)


def accept(
    name: Annotated[str, typer.Argument(metavar="TOOL|ENTRY", help="The tool, or the id of its entry.")],
    price: Annotated[
        str | None,
        typer.Option(metavar="DOLLARS", help="The highest price to pay. Default: the current price."),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION",
            help="Only the price of this action, if actions have their own. Default: all raised or unknown prices.",
        ),
    ] = None,
    ledger: LedgerOption = None,
) -> None:
    """Accept a higher price, set the price of a tool without one, or allow a stopped tool again.

    Examples:

      toolwire catalog accept search    # needs an account

      toolwire catalog accept search --price 0.02    # needs an account

      toolwire catalog accept search --price 0.02 --action deep    # needs an account
    """
    from toolwire.catalog.ledger.types import format_dollars  # noqa: PLC0415

    wanted = _parse_money("--price", price)
    opened = _open_ledger(ledger)
    if opened is None:
        raise UsageError(f"there is no ledger at {_ledger_address(ledger)}")
    with opened:
        entry, tool = _find_entry(opened, name)
        stopped = opened.stopped(entry) is not None
        done = []
        with opened.together():
            for variant, (was, new) in _new_prices(opened, entry, wanted, action).items():
                opened.accept_price(entry, new, tool, variant)
                label = f"{tool} ({variant})" if variant else tool
                known = "unknown" if was is None else format_dollars(was)
                done.append(f"{label} may now cost {format_dollars(new)} per call; before: {known}.")
            if stopped:
                opened.accept(entry)
                done.append(f"{tool} may be called again.")
    for line in done or [f"Nothing to accept: {name} is not stopped, and its price has not risen."]:
        typer.echo(one_line(line))


def _find_entry(opened: "Ledger", name: str) -> tuple[str, str]:
    """Find the entry with this name, and its tool. Of several, choose the one that waits to be accepted."""
    found, waiting = opened.find(name), _find_waiting(opened)
    if not found:
        names = ", ".join(sorted(set(waiting.values())))
        more = f"; waiting to be accepted: {names}" if names else ""
        raise UsageError(f"the ledger has no stopped tool and no price called {name}{more}")
    chosen = sorted(found.keys() & waiting.keys()) or sorted(found)
    if len(chosen) > 1:
        raise UsageError(f"{name} matches {len(chosen)} entries, name one of them: {', '.join(chosen)}")
    return chosen[0], found[chosen[0]] or chosen[0]


def _new_prices(
    opened: "Ledger", entry: str, wanted: int | None, action: str | None
) -> dict[str, tuple[int | None, int]]:
    """Return the prices of an entry to change, by action: each with the price accepted before, and the new one."""
    known = {each.variant: each for each in opened.prices() if each.entry_id == entry}
    unpriced = {each.variant: each for each in opened.unpriced() if each.entry_id == entry}
    waiting = {variant for variant, each in known.items() if each.offered > each.price} | unpriced.keys()
    if action is not None:
        waiting &= {action}
    if wanted is None:
        if waiting and waiting <= unpriced.keys() and opened.stopped(entry) is None:
            tool = unpriced[min(waiting)].tool or entry
            raise UsageError(f"{tool} has no known price: set one with --price 0.01")
        return {each: (known[each].price, known[each].offered) for each in sorted(waiting & known.keys())}
    chosen = waiting or ({action} if action is not None else known.keys()) or {""}
    if not waiting and len(chosen) > 1:
        actions = ", ".join(each or '""' for each in sorted(chosen))
        raise UsageError(f"{entry} has {len(chosen)} prices, choose one with --action: {actions}")
    return {each: (known[each].price if each in known else None, wanted) for each in sorted(chosen)}


def _find_waiting(opened: "Ledger") -> dict[str, str]:
    """Find the entries with something to accept, each with the name of its tool."""
    raised = [each for each in opened.prices() if each.offered > each.price]
    waiting = [
        (each.entry_id, each.tool) for group in (opened.unpriced(), opened.stops(), raised) for each in group
    ]
    return {entry: tool or entry for entry, tool in waiting}


def _ledger_address(given: str | None) -> "Address":
    from toolwire.catalog.ledger.opening import LEDGER, default_address  # noqa: PLC0415

    return default_address() if given is None else default_address({LEDGER: given})


def _open_ledger(given: str | None) -> "Ledger | None":
    """Open the ledger, without creating it. Returns None if the default one does not exist yet."""
    from toolwire.catalog.ledger.opening import is_url, open_ledger  # noqa: PLC0415

    place = _ledger_address(given)
    if not is_url(place) and not Path(place).exists():
        if given is not None:
            raise UsageError(f"there is no ledger at {given}")
        return None
    return open_ledger(place, create=False)


def _parse_money(option: str, text: str | None) -> int | None:
    from toolwire.catalog.money import micros  # noqa: PLC0415

    if text is None:
        return None
    try:
        return micros(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _check_options(call: str | None, charged: bool | None, cost: int | None, everything: bool) -> None:
    """Raise `UsageError` for options that contradict each other."""
    if everything and (call is not None or charged is not None or cost is not None):
        raise UsageError("--all-not-charged applies to all calls: leave out the id, --charged and --amount")
    if call is None and (charged is not None or cost is not None):
        raise UsageError("name the call: toolwire catalog reconcile ID --charged or --not-charged")
    if call is not None and charged is None:
        raise UsageError(f"give the outcome of call {call}: --charged or --not-charged")
    if cost is not None and not charged:
        raise UsageError("--amount only applies with --charged")


def _find_call(opened: "Ledger", unknown: "list[Row]", start: str) -> "Row":
    """Find the unknown call whose id begins with `start`."""
    fitting = [row for row in unknown if row.id.startswith(start)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{len(fitting)} calls begin with {start}: {', '.join(row.id for row in fitting)}")
    other = next((row for row in opened.rows() if row.id.startswith(start)), None)
    if other is not None:
        raise UsageError(f"call {other.id} is {other.state}, not unknown: there is nothing to reconcile")
    raise UsageError(f"there is no call {start} in the ledger")


def check(
    profile: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="The file of a profile, or the name of a built-in one.")
    ],
    credentials: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The credentials file. Default: $TOOLWIRE_CREDENTIALS."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Test a profile against its API: fetch the list, show how it is read, report mistakes. Buys nothing.

    Examples:

      toolwire catalog check shop.toml    # needs a server

      toolwire catalog check agentpmt --json    # needs an account
    """
    from toolwire.catalog.profile.model import Profile  # noqa: PLC0415 - heavy
    from toolwire.catalog.secrets import CREDENTIALS, find_credentials  # noqa: PLC0415

    found = Profile.find(profile.removeprefix(CATALOG)).resolved(os.environ)
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

      toolwire catalog schema > profile.schema.json    # in the profile: #:schema ./profile.schema.json

      toolwire catalog schema --markdown
    """
    from toolwire.catalog.profile.model import json_schema, reference  # noqa: PLC0415 - heavy

    if markdown:
        typer.echo(reference(), nl=False)
    else:
        show_json(json_schema())


def pin(
    target: Annotated[str, typer.Argument(metavar="catalog:PROFILE", help="The catalogue.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE|ledger", help="The file to write, or the ledger, for serve --pins.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Only show differences; exit with 1 if there are any.")
    ] = False,
    ledger: LedgerOption = None,
) -> None:
    """Accept the tools and prices of a catalogue as they are now. Tools that differ later are not offered.

    Examples:

      toolwire catalog pin catalog:agentpmt pins.json    # needs an account

      toolwire catalog pin catalog:agentpmt pins.json --check    # needs an account

      toolwire serve catalog:agentpmt --pins pins.json    # needs an account

      toolwire catalog pin catalog:agentpmt ledger --ledger postgresql://db.example/shop    # needs an account
    """
    if not target.startswith(CATALOG):
        raise UsageError(f"only catalog:PROFILE targets can be pinned, and {target} is not one")
    from toolwire.catalog.tools.pins import Pins, compare  # noqa: PLC0415 - heavy

    found = resolve_target(target, None, ledger=ledger)
    definitions = run(_list_definitions, found)
    before = _load_pins(found, file, ledger)
    changes = compare(definitions, before)
    for change in changes if before.tools or check else ():
        typer.echo(plain(f"{change.name}: {change.kind.replace('_', ' ')}\n{change.diff}".rstrip()))
    if check:
        if changes:
            raise typer.Exit(1)
        typer.echo(f"{len(definitions)} tools, all as pinned.")
        return
    _save_pins(found, file, ledger, Pins.of(definitions))
    typer.echo(f"{len(definitions)} tools are pinned in {file}.")


def _load_pins(target: "Target", file: str, ledger: str | None) -> "Pins":
    from toolwire.catalog.ledger.opening import open_ledger  # noqa: PLC0415
    from toolwire.catalog.server import IN_LEDGER  # noqa: PLC0415
    from toolwire.catalog.tools.pins import Pins  # noqa: PLC0415

    if file != IN_LEDGER:
        return Pins.load(file)
    with open_ledger(_ledger_address(ledger)) as opened:
        kept = opened.document(target.server.pins_document)
    return Pins() if kept is None else Pins.parse(kept.content, f"the document in {opened.path}")


def _save_pins(target: "Target", file: str, ledger: str | None, pins: "Pins") -> None:
    from toolwire.catalog.ledger.opening import open_ledger  # noqa: PLC0415
    from toolwire.catalog.server import IN_LEDGER  # noqa: PLC0415

    if file != IN_LEDGER:
        pins.save(file)
        return
    with open_ledger(_ledger_address(ledger)) as opened:
        opened.change_document(target.server.pins_document, lambda _: pins.dump())


async def _list_definitions(target: "Target") -> "list[Definition]":
    async with connect(target):
        return list(target.server.definitions.values())


async def _check_profile(profile: "Profile", secrets: "Credentials") -> "Checked":
    from toolwire._support.scrubber import Scrubber  # noqa: PLC0415
    from toolwire.catalog.check import check_profile  # noqa: PLC0415
    from toolwire.catalog.http.api import Api  # noqa: PLC0415
    from toolwire.catalog.http.connection import Retry  # noqa: PLC0415

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
            + ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items() if number)
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
        _heading("request of a call")
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
        else f"{count(errors, 'error')}, {count(warnings, 'warning')}"
    )
    _line(f"  {verdict}; nothing was bought")


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


catalog_app = make_app(
    "catalog",
    "Manage the paid tools of a REST catalogue: costs, prices and profiles.",
    (spend, reconcile, accept, pin, check, schema),
)
