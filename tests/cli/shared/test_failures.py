"""What commands show of the log."""

import logging

from toolwire.cli.shared.failures import shown_warnings


def test_warnings_are_lines_on_stderr_and_not_repeated(capsys):
    """One that comes every second would push everything else off the screen."""
    logger = logging.getLogger("toolwire.batch")
    with shown_warnings():
        for _ in range(3):
            logger.warning("the database is\n away\x1b[31m")
        logger.error("other")
        logger.info("not shown")
    logger.warning("after the block")
    assert capsys.readouterr().err == "Warning: the database is away\nError: other\n"
