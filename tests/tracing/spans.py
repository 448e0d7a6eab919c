"""Writes spans as lines of text that are the same for the same program, so that two runs can be compared.

Only ids, times, durations, costs and stack traces are replaced. Equal ids stay equal: each becomes a number in
the order in which ids occur.
"""

import json
import re

IDS = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?:toolu|msg|req)_[0-9A-Za-z]+\b"
    r"|(?<=/cc-socks/)\d+"  # the CLI's own process id
)
MEASURED = re.compile(
    r"duration|latency|_ms$|(^|[._])cost|start_time|end_time|^start$|^end$|time_to_first|timestamp|dotted_order|stacktrace",
    re.IGNORECASE,
)
"""Names of attributes that hold times, durations, costs and stack traces."""


def describe(spans):
    """Return the spans as a tree in lines: a span, its attributes and events, then its children."""
    by_id = {span["id"]: span for span in spans if span["id"]}
    children = {}
    for span in sorted(spans, key=lambda span: (str(span["start"]), span["name"])):
        children.setdefault(span["parent"] if span["parent"] in by_id else None, []).append(span)
    numbers = {}
    lines = []

    def add(span, depth):
        lines.extend(f"{'  ' * depth}{line}" for line in _describe_one(span, by_id, numbers))
        for child in children.get(span["id"], ()) if span["id"] else ():
            add(child, depth + 1)

    for root in children.get(None, ()):
        add(root, 0)
    return lines


def _describe_one(span, by_id, numbers):
    parent = span["parent"]
    # Distinguish a parent that was never finished from no parent.
    missing = " (parent unknown)" if parent and parent not in by_id else ""
    yield f"{span['name']} [{span.get('scope') or ''} {span['kind']}] {_plain(span['status'], numbers)}{missing}"
    for name, value in sorted(span["attributes"].items()):
        yield f"    {name} = {'(measured)' if MEASURED.search(name) else _plain(value, numbers)}"
    for event in span["events"] or ():
        yield f"    event {_plain(event, numbers)}"


def _plain(value, numbers):
    """Return a value as JSON, with ids numbered and measured fields replaced."""
    text = json.dumps(_hide_measured(value), sort_keys=True, ensure_ascii=False)
    return IDS.sub(lambda found: f"<id {numbers.setdefault(found.group(), len(numbers) + 1)}>", text)


def _hide_measured(value):
    if isinstance(value, dict):
        return {
            name: "(measured)" if MEASURED.search(name) else _hide_measured(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_hide_measured(each) for each in value]
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            return _hide_measured(json.loads(value))
        except ValueError:
            return value
    return value
