"""How commands format numbers."""

import pytest

from toolwire.cli.shared.printing import size

KB, MB = 1024, 1024 * 1024


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (KB, "1 KB"),
        (100 * KB + 1, "100 KB"),
        (MB, "1.0 MB"),
        (3 * MB // 2, "1.5 MB"),
        (10 * MB + 300 * KB, "10.3 MB"),
    ],
)
def test_sizes(count, expected):
    """Sizes are in bytes, KB or MB of 1024; MB have one decimal."""
    assert size(count) == expected
