"""The header of an exported session: its title and facts about it, each a name and a text."""

from collections.abc import Sequence
from dataclasses import dataclass

from toolwire.sessions.cost import SessionCost
from toolwire.sessions.entries import format_time
from toolwire.sessions.types import SDKSessionInfo


@dataclass(frozen=True)
class Header:
    """The title of a session, and facts about it. They come from the transcript and are not escaped."""

    title: str
    facts: Sequence[tuple[str, str]]


def describe_header(info: SDKSessionInfo, cost: SessionCost) -> Header:
    """Return the header of a session."""
    facts = [
        ("Session", info.session_id),
        ("Directory", info.cwd or ""),
        ("Branch", "" if info.git_branch in {None, "HEAD"} else str(info.git_branch)),
        ("Tag", info.tag or ""),
        ("Begun", format_time(info.created_at)),
        ("Last written", format_time(info.last_modified)),
        ("Models", ", ".join(cost.models)),
        ("Tokens", format_tokens(cost)),
        ("Cost", format_cost(cost)),
    ]
    title = info.summary or f"Session {info.session_id}"
    return Header(title, [(name, value) for name, value in facts if value])


def format_tokens(cost: SessionCost) -> str:
    """Format the tokens of a session; empty if it has none."""
    usage = cost.usage
    if not usage.tokens:
        return ""
    cached = usage.cache_read_tokens
    more = f", {cached:,} read from the cache" if cached else ""
    return f"{usage.input_tokens + usage.cache_write_tokens:,} in, {usage.output_tokens:,} out{more}"


def format_cost(cost: SessionCost) -> str:
    """Format the cost of a session, with "at least" if the CLI has not recorded all of it."""
    if cost.cost_usd is None:
        return ""
    return f"{'at least ' if cost.is_estimate else ''}{format_dollars(cost.cost_usd)}"


def format_dollars(amount: float) -> str:
    """Format an amount with cents, or as many digits as a small one needs."""
    if not amount or amount >= 0.1:  # noqa: PLR2004 - ten cents
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.0001 else f"${amount:.2g}"  # noqa: PLR2004 - four digits
