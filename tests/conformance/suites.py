"""The suites that we run, and the checks that we decided against, each with its reason."""

from conformance.judging import Suite

_OLD_HEADER = (
    "the suite asks with the header of 2025-03-26, whose clients cannot read the event of 2025-11-25 that it then "
    "looks for; the suite itself calls the scenario pending, and its next version asks with the right header"
)

SUITES = (
    Suite(
        name="2025-11-25",
        package="conformance-2025-11-25",
        listing=("list", "--server", "--spec-version", "2025-11-25"),
        running=("server", "--suite", "all", "--spec-version", "2025-11-25"),
        decided_against={
            "server-sse-polling:server-sse-priming-event": _OLD_HEADER,
            "server-sse-polling:server-sse-retry-field": _OLD_HEADER,
        },
    ),
    Suite(
        name="2026-07-28",
        package="conformance-2026-07-28",
        listing=("list", "--server", "--requirements", "2026-07-28"),
        running=("server", "--requirements", "2026-07-28"),
    ),
    # The newer suite on the older protocol: it also validates every message against the schema.
    Suite(
        name="2025-11-25-again",
        package="conformance-2026-07-28",
        listing=("list", "--server", "--requirements", "2025-11-25"),
        running=("server", "--requirements", "2025-11-25"),
    ),
)
