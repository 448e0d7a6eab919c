"""Retries: how often and how soon, for what is safe to retry."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Retry:
    """The number and times of retries, for what is safe to retry. In seconds."""

    attempts: int = 3
    wait: float = 0.2
    """Before the second attempt; doubled for each further one."""
    longest_wait: float = 5.0
    jitter: float = 0.2
    longest_retry_after: float = 30.0
    """The longest wait that an API may ask for."""

    def pause(self, tries: int, retry_after: float | None) -> float:
        """Return the seconds to wait after that many tries."""
        jitter = random.uniform(0, self.jitter)  # noqa: S311 - spreads callers, keeps no secret
        if retry_after is not None:
            return min(retry_after, self.longest_retry_after) + jitter
        return min(self.wait * 2.0 ** (tries - 1), self.longest_wait) + jitter
