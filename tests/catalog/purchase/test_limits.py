"""The rate limit, the breaker and the result cache, with a clock that only changes when a test sets it."""

import anyio
import pytest

from toolwire.catalog.purchase.limits import Breaker, RateLimit, ResultCache


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class TestRateLimit:
    """A rate per second, with a burst."""

    def test_a_burst_goes_at_once_and_the_rest_in_turn(self, clock):
        """Three calls go at once, then one every half second."""
        limit = RateLimit(2, burst=3, clock=clock)
        assert [limit.take() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]

    def test_time_fills_the_bucket_up_to_the_burst(self, clock):
        """A long pause allows no more than one burst."""
        limit = RateLimit(10, burst=2, clock=clock)
        limit.take()
        clock.now += 1000
        assert [limit.take() for _ in range(3)] == pytest.approx([0, 0, 0.1])

    def test_to_ask_takes_no_place(self, clock):
        """`delay` only returns the delay; `take` also takes the turn."""
        limit = RateLimit(1, clock=clock)
        assert (limit.delay(), limit.delay(), limit.take(), limit.delay()) == (0, 0, 0, 1)

    @pytest.mark.parametrize(
        ("rate", "burst"), [(0, 1), (-1, 1), (float("inf"), 1), (float("nan"), 1), (1, 0)]
    )
    def test_what_cannot_work_is_refused(self, rate, burst):
        """The rate must be finite and above 0, the burst 1 or more."""
        with pytest.raises(ValueError, match=r"per_second|burst"):
            RateLimit(rate, burst)

    @pytest.mark.anyio
    async def test_a_wait_that_is_too_long_is_not_begun(self, clock):
        """`wait` returns False at once, and takes no turn."""
        limit = RateLimit(0.1, clock=clock)
        assert await limit.wait(1)
        assert not await limit.wait(1)
        assert limit.delay() == 10

    @pytest.mark.anyio
    async def test_a_cancelled_wait_gives_its_place_back(self, clock):
        """Later callers do not wait for one that was cancelled."""
        limit = RateLimit(0.01, clock=clock)
        limit.take()
        with anyio.move_on_after(0.01) as scope:
            await limit.wait()
        assert scope.cancelled_caught
        assert limit.delay() == 100

    @pytest.mark.anyio
    async def test_waiting_takes_as_long_as_it_says(self):
        """With the real clock, four calls at 100 per second take three hundredths of a second."""
        limit = RateLimit(100)
        started = anyio.current_time()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(limit.wait)
        assert anyio.current_time() - started >= 0.029


class TestBreaker:
    """The breaker's states: closed, open and half-open."""

    @pytest.fixture
    def breaker(self, clock):
        return Breaker(failures=2, reset_after=10, clock=clock)

    @staticmethod
    def broken(breaker):
        for _ in range(2):
            breaker.failed(breaker.admit())

    def test_failures_in_a_row_open_it(self, breaker):
        """Two failures open this breaker; then it admits no call."""
        breaker.failed(breaker.admit())
        assert breaker.state == "closed"
        breaker.failed(breaker.admit())
        assert (breaker.state, breaker.admit(), breaker.retry_in) == ("open", None, 10)

    def test_a_success_starts_the_count_again(self, breaker):
        """Only failures in a row count."""
        for _ in range(5):
            breaker.failed(breaker.admit())
            breaker.succeeded(breaker.admit())
        assert (breaker.state, breaker.retry_in) == ("closed", 0)

    def test_one_probe_goes_after_the_rest(self, breaker, clock):
        """After `reset_after` seconds exactly one call is admitted."""
        self.broken(breaker)
        clock.now += 10
        assert (breaker.admit() is not None, breaker.state, breaker.admit()) == (True, "half-open", None)

    def test_a_good_probe_closes_it(self, breaker, clock):
        """After that all calls are admitted, and failures are counted from 0."""
        self.broken(breaker)
        clock.now += 10
        breaker.succeeded(breaker.admit())
        breaker.failed(breaker.admit())
        assert breaker.state == "closed"

    def test_a_bad_probe_opens_it_again(self, breaker, clock):
        """A single failure opens it for the whole time again."""
        self.broken(breaker)
        clock.now += 10
        breaker.failed(breaker.admit())
        assert (breaker.state, breaker.retry_in) == ("open", 10)

    def test_an_abandoned_probe_makes_room_for_another(self, breaker, clock):
        """It proved nothing, so the next caller may try at once."""
        self.broken(breaker)
        clock.now += 10
        breaker.abandoned(breaker.admit())
        assert breaker.state == "open"
        assert breaker.admit() is not None

    def test_a_probe_that_never_reports_locks_nothing(self, breaker, clock):
        """After another `reset_after` seconds the next one is admitted."""
        self.broken(breaker)
        clock.now += 10
        breaker.admit()
        clock.now += 10
        assert breaker.admit() is not None

    def test_late_reports_upset_nothing(self, breaker, clock):
        """The result of a call from before a change of state is ignored, good or bad."""
        late = breaker.admit()
        self.broken(breaker)
        breaker.succeeded(late)
        breaker.failed(late)
        breaker.abandoned(late)
        assert (breaker.state, breaker.retry_in) == ("open", 10)
        clock.now += 10
        breaker.succeeded(breaker.admit())
        breaker.failed(late)
        breaker.failed(late)
        assert breaker.state == "closed"

    def test_to_abandon_a_usual_call_changes_nothing(self, breaker):
        """Only an abandoned probe has an effect."""
        breaker.abandoned(breaker.admit())
        assert breaker.state == "closed"

    @pytest.mark.parametrize(("failures", "reset_after"), [(0, 1), (1, 0), (1, float("inf"))])
    def test_what_cannot_work_is_refused(self, failures, reset_after):
        """`failures` must be 1 or more, and `reset_after` finite and above 0."""
        with pytest.raises(ValueError, match=r"failures|reset_after"):
            Breaker(failures, reset_after)


class TestResultCache:
    """Results that are cached for a while."""

    def test_a_result_is_there_until_its_time_is_over(self, clock):
        """A result has its own time to live, or else that of the cache."""
        cache = ResultCache(10, clock=clock)
        cache.put("a", {"n": 1})
        cache.put("b", {"n": 2}, ttl=20)
        clock.now += 10
        assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (None, {"n": 2}, None, 1)

    def test_nobody_can_change_what_the_next_one_gets(self, clock):
        """Results are copied, both into the cache and out of it."""
        cache = ResultCache(10, clock=clock)
        given = {"list": [1]}
        cache.put("a", given)
        given["list"].append(2)
        cache.get("a")["list"].append(3)
        assert cache.get("a") == {"list": [1]}

    def test_the_oldest_goes_first(self, clock):
        """The number of results is limited; to put a result again makes it the newest."""
        cache = ResultCache(10, max_entries=2, clock=clock)
        for key in ("a", "b", "a", "c"):
            cache.put(key, key)
        assert [cache.get(key) for key in ("a", "b", "c")] == ["a", None, "c"]

    def test_it_is_bounded_in_bytes(self, clock):
        """Older results make room for a new one. One that is too large is not kept, nor is the one it replaces."""
        cache = ResultCache(10, max_bytes=10, clock=clock)
        cache.put("a", "12345")
        cache.put("b", "1234567")
        assert (cache.get("a"), cache.get("b")) == (None, "1234567")
        cache.put("b", "12345678901")
        assert (cache.get("b"), len(cache)) == (None, 0)

    def test_keys_tell_payers_tools_and_arguments_apart(self):
        """The key depends on payer, tool and arguments, but not on the order of the arguments."""
        key = ResultCache.key
        assert key("me", "t", {"a": 1, "b": 2}) == key("me", "t", {"b": 2, "a": 1})
        assert (
            len({key("me", "t", {}), key("you", "t", {}), key("me", "u", {}), key("me", "t", {"a": 1})}) == 4
        )

    @pytest.mark.parametrize("bad", [{"ttl": 0}, {"ttl": 1, "max_entries": 0}, {"ttl": 1, "max_bytes": 0}])
    def test_what_cannot_work_is_refused(self, bad):
        """The time to live and both limits must be above 0."""
        with pytest.raises(ValueError, match=r"ttl|max_"):
            ResultCache(**bad)
