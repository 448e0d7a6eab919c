"""Log messages that commands show to the user."""

import io
import logging

from toolwire.cli.shared.failures import shown_warnings


def test_warnings_are_lines_on_stderr_and_not_repeated(capsys):
    """A warning that is logged every second would push everything else off the screen."""
    logger = logging.getLogger("toolwire.batch")
    with shown_warnings():
        for _ in range(3):
            logger.warning("the database is\n away\x1b[31m")
        logger.error("other")
        logger.info("not shown")
    logger.warning("after the block")
    assert capsys.readouterr().err == "Warning: the database is away\nError: other\n"


class ClosedOutput(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError


def test_a_warning_that_cannot_be_printed_does_not_fail_what_logs_it(monkeypatch):
    """The heartbeats of a worker log warnings: they must go on when its stderr is closed."""
    monkeypatch.setattr("sys.stderr", ClosedOutput())
    with shown_warnings():
        logging.getLogger("toolwire.batch").warning("the database is away")
