"""The log shows no secret, and does not repeat a line without end."""

import logging

import pytest

from toolwire._support.log import RepeatLimit, logger_for
from toolwire._support.secrets import REDACTED, keep_secret


@pytest.fixture
def shown(caplog):
    """Return a function that gives everything that a handler would write."""
    caplog.set_level(logging.DEBUG, "toolwire")
    formatter = logging.Formatter("%(message)s")
    return lambda: "\n".join(formatter.format(record) for record in caplog.records)


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-api03-abcdefgh_1234-xyz", "Authorization: Bearer abc.def-ghi_jkl==", "my-own-secret-value"],
)
def test_secrets_are_taken_out_of_messages_arguments_and_traces(shown, secret):
    """Secrets are recognised by their form, or because they were passed to keep_secret()."""
    keep_secret(["my-own-secret-value", "abc"])
    logger = logger_for("test")
    logger.info("the key is %s", secret)
    logger.info(secret)
    try:
        raise ValueError(f"bad {secret}")  # noqa: TRY301
    except ValueError:
        logger.exception("failed")
    text = shown()
    assert secret.rpartition(" ")[2] not in text
    assert text.count(REDACTED) >= 3
    assert "ValueError: bad" in text


def test_what_is_no_secret_stays_as_it_is(shown, caplog):
    """Arguments stay arguments, for handlers that look at them; short values are not searched for."""
    keep_secret(["abc"])
    logger_for("test").info("the %s is abcdef", "word")
    assert shown() == "the word is abcdef"
    assert caplog.records[0].args == ("word",)


def test_a_secret_that_begins_with_another_is_taken_out_whole(shown):
    """The longer one is replaced first."""
    keep_secret(["secret-one", "secret-one-and-more"])
    logger_for("test").info("it is secret-one-and-more")
    assert shown() == f"it is {REDACTED}"


def test_an_argument_that_cannot_be_shown_breaks_nobody(monkeypatch):
    """The logging module handles it in its own way, and nothing is raised."""
    monkeypatch.setattr(logging, "raiseExceptions", False)

    class Odd:
        def __str__(self):
            raise ValueError("no")

    logger_for("test").info("it is %s", Odd())


def test_a_line_that_is_repeated_is_left_out_and_counted(monkeypatch):
    """Five in ten seconds pass, the next one tells how many were left out; other lines and ours are not limited."""
    now = 1_000.0
    monkeypatch.setattr("toolwire._support.log.time.monotonic", lambda: now)
    limit = RepeatLimit()

    def passed(name="uvicorn.error", line=1, text="Invalid HTTP request received."):
        record = logging.LogRecord(name, logging.WARNING, "h11.py", line, text, (), None)
        return record.getMessage() if limit.filter(record) else None

    assert [passed() for _ in range(1_000)].count(None) == 995
    assert passed(line=2) is not None
    assert all(passed("toolwire.serving", line=3) for _ in range(100))
    now += 11
    assert passed() == "Invalid HTTP request received. (995 more like this were left out)"
    assert passed() == "Invalid HTTP request received."


def test_the_last_of_stderr_shows_no_part_of_a_secret():
    """Secrets are removed before the text is cut, so that no end of one is left at its beginning."""
    from toolwire._conversation.session import Stderr  # noqa: PLC0415

    keep_secret(["a-secret-that-is-cut-in-half"])
    stderr = Stderr(None)
    stderr.feed(b"a-secret-that-is-cut-in-half " + b"word " * 1_634)
    assert "half" not in stderr.tail()
    assert stderr.tail().endswith("…")
