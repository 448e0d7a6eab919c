"""Kills and pauses at random times: nothing is lost, and nothing is paid twice."""

import signal
import threading
import time

import pytest

from batch_faults.stage import Stage
from shared.moved_clock import MovedClock

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


def paid(stage):
    return len(stage.journal.asked())


def test_one_worker_is_killed(at, tmp_path, dice):
    """200 runs, 3 workers, one killed: none lost, none paid twice, the ledger agrees with the results."""
    with Stage(at, tmp_path) as stage:
        driver, workers = stage.start_all()
        kill_at = dice.randrange(1, 190)
        stage.wait(lambda: paid(stage) >= kill_at)
        dice.choice(workers).kill()
        stage.wait_over()
        assert driver.wait(90) == 0
        stage.stop_workers()
        stage.report(stage.check())


def test_the_driver_is_killed_while_it_adds(at, tmp_path, dice):
    """Started again, it adds what is missing, starts no run again, and shows the finished results first."""
    with Stage(at, tmp_path, tasks=120, pause=0.05) as stage:
        driver, _ = stage.start_all(2)
        time.sleep(dice.uniform(0.0, 1.0))
        driver.kill()
        stage.wait(lambda: stage.records.counts().get("running", 0) == 0)
        finished = {run.key for run in stage.records.ended_after(0, 1000)}
        driver = stage.start("driver")
        stage.wait_over()
        assert driver.wait(90) == 0
        stage.stop_workers()
        shown = [each["key"] for each in stage.journal.of("result") if each["pid"] == driver.pid]
        assert set(shown[: len(finished)]) == finished
        assert len(set(shown)) == len(shown) == 120
        figures = stage.check()
        assert figures["runs"] == {"done": 120}
        stage.report(figures | {"before": len(finished)})


def test_all_processes_are_killed(at, tmp_path, dice):
    """Driver and workers die at the same time and are started again: none lost, none paid twice."""
    with Stage(at, tmp_path, tasks=150) as stage:
        stage.start_all()
        kill_at = dice.randrange(5, 140)
        stage.wait(lambda: paid(stage) >= kill_at)
        for process in stage.processes:
            process.kill()
        stage.start_all()
        stage.wait_over()
        stage.stop_workers()
        stage.report(stage.check())


def test_a_worker_is_paused_past_its_lease(at, tmp_path, dice):
    """Its late results are booked once or refused; none is paid twice.

    Runs that it stops because it was declared lost have failed, with a known cost.
    """
    with Stage(at, tmp_path, tasks=150, stale=5.0) as stage:
        driver, workers = stage.start_all()
        pause_at = dice.randrange(5, 100)
        # A worker that has not started yet has no lease to lose.
        stage.wait(lambda: paid(stage) >= pause_at and stage.records.counts()["workers"] == len(workers))
        paused = dice.choice(workers)
        stage.pause(paused)
        time.sleep(9)  # past the lease, by any clock
        paused.send_signal(signal.SIGCONT)
        stage.wait_over()
        assert driver.wait(90) == 0
        assert paused.wait(90) != 0  # it was declared lost, so it exits with an error
        stage.stop_workers()
        stage.report(stage.check(states=("done", "unknown", "failed")))


def test_a_lock_that_is_held_past_the_leases(at, tmp_path, dice):
    """No worker can send a heartbeat, so none is declared lost; when the lock is released, all of them continue."""
    with Stage(at, tmp_path, tasks=150, stale=5.0) as stage:
        driver, workers = stage.start_all()
        hold_at = dice.randrange(5, 100)
        stage.wait(lambda: paid(stage) >= hold_at and stage.records.counts()["workers"] == len(workers))
        with stage.locked():
            time.sleep(dice.uniform(5.5, 9))  # past the lease
        stage.wait_over()
        assert driver.wait(90) == 0
        assert [each.poll() for each in workers] == [None] * len(workers)
        stage.stop_workers()
        assert [each.returncode for each in workers] == [0] * len(workers)
        figures = stage.check()
        assert figures["runs"] == {"done": 150}
        stage.report(figures)


def test_a_budget_for_a_third_is_never_overrun(at, tmp_path, dice):
    """24 at once, a kill in between: booked and reserved money, checked every 10 ms, never exceeds the budget."""
    budget, cost = 100 * 140 * 2, 140  # micro-dollars; per_run is twice what a run costs
    with Stage(at, tmp_path, tasks=300, budget=str(budget / 1e6), per_run="0.00028", delay=0.1) as stage:
        driver, workers = stage.start_all()
        seen, over = [], threading.Event()

        def look():
            with stage.ledger() as ledger:
                while not over.wait(0.01):
                    seen.append(sum(total.money for total in ledger.totals("session")))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            kill_at = dice.randrange(5, 150)
            stage.wait(lambda: paid(stage) >= kill_at)
            dice.choice(workers).kill()
            stage.wait_over()
            assert driver.wait(90) == 0
            stage.stop_workers()
        finally:
            over.set()
            looking.join()
        assert len(seen) > 100
        assert max(seen) <= budget
        figures = stage.check(states=("done", "unknown", "refused"))
        spent = figures["settled"] + 2 * cost * figures["runs"].get("unknown", 0)
        assert budget - spent < 2 * cost  # no run was refused while there was money for it
        stage.report(figures | {"most": max(seen), "budget": budget, "looks": len(seen)})


def test_cancelled_runs_are_gone_at_once(at, tmp_path, dice):
    """No CLI starts after the call has returned, running ones end within 3 s, and their money is settled."""
    with Stage(at, tmp_path, tasks=150, delay=20.0, concurrency=4) as stage:
        driver, _ = stage.start_all()
        stage.wait(lambda: paid(stage) >= dice.choice([4, 8, 12]))
        began = time.monotonic()
        cancelled = stage.start("canceller")
        stage.wait(lambda: stage.journal.of("cancelled"))
        (told,) = stage.journal.of("cancelled")
        assert told["seconds"] < 3.0, told
        before = paid(stage)
        stage.wait_over()
        assert driver.wait(90) == 0
        assert cancelled.wait(90) == 0
        stage.stop_workers()
        assert paid(stage) == before
        figures = stage.check(states=("cancelled", "unknown", "done"))
        assert figures["runs"]["cancelled"] >= 138
        stage.report(figures | {"seconds": told["seconds"], "all": time.monotonic() - began})


def test_the_database_is_killed(postgres_server, tmp_path, dice, monkeypatch):
    """Postgres is down for 5 s: the workers wait and continue, nothing is lost and nothing booked twice."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    with Stage(postgres_server.create_database(), tmp_path, tasks=150, stale=20.0) as stage:
        driver, _ = stage.start_all()
        kill_at = dice.randrange(5, 120)
        stage.wait(lambda: paid(stage) >= kill_at)
        postgres_server.kill()
        time.sleep(5)
        postgres_server.start()
        stage.wait_over()
        assert driver.wait(90) == 0
        stage.stop_workers()
        figures = stage.check()
        assert figures["runs"] == {"done": 150}
        stage.report(figures)


def test_a_run_of_two_hours_is_not_begun_again(at, tmp_path):
    """It takes many times longer than a lease, by the clocks of both workers, while each checks the other.

    It sends a message every ten minutes, which is more often than a run must.
    """
    clock = MovedClock(tmp_path / "clock")
    settings = {"tasks": 4, "long_steps": 12, "on_lost": "again", "concurrency": 2, "delay": 0.0}
    with Stage(at, tmp_path, stale=300.0, beat=0.05, **settings) as stage:
        driver, _ = stage.start_all(2, clock=str(clock.path))
        stage.wait(lambda: len(stage.journal.of("worker")) == 2, 60)
        stage.wait(lambda: stage.records.counts().get("done") == 3, 60)

        def beats():
            return {each["id"]: each["beat"] for each in stage.records.workers()}

        def pass_ten_minutes():
            for _ in range(3):
                before = beats()
                assert len(before) == 2
                clock.move(200.0)
                stage.wait(lambda before=before: all(beats()[each] > before[each] for each in before), 60)

        for steps in range(1, 13):
            stage.wait(lambda steps=steps: len(stage.journal.of("step")) == steps, 60)
            pass_ten_minutes()
        stage.wait_over(60)
        assert driver.wait(90) == 0
        stage.stop_workers()
        figures = stage.check()
        assert figures["runs"] == {"done": 4}
        assert (figures["asked"], clock.ahead) == (4, 7200.0)
        assert {run.attempt for run in stage.records.ended_after(0)} == {1}
        stage.report(figures)


def test_a_new_version_of_the_file_takes_what_waits(at, tmp_path, dice):
    """Runs added with an old version of the user's file are executed with the new one, or fail with the reason."""
    with Stage(at, tmp_path, tasks=30) as stage:
        driver = stage.start("driver")
        stage.wait(lambda: stage.journal.of("added"))
        stage.start("worker", version=2)
        stage.wait_over()
        assert driver.wait(90) == 0
        stage.stop_workers()
        figures = stage.check(states=("done", "failed"))
        assert figures["runs"] == {"done": 27, "failed": 3}  # the new version refuses names with a 5
        errors = {run.error for run in stage.records.ended_after(0, 1000) if run.state == "failed"}
        assert all("no fives any more" in each for each in errors), errors
        stage.report(figures)


@pytest.mark.parametrize("on_lost", ["resume", "again"])
def test_lost_runs_are_run_again_if_that_is_wanted(at, tmp_path, dice, on_lost):
    """Every run is done in the end, and only those of the killed worker were requested again."""
    with Stage(at, tmp_path, tasks=100, on_lost=on_lost) as stage:
        driver, workers = stage.start_all()
        kill_at = dice.randrange(5, 90)
        stage.wait(lambda: paid(stage) >= kill_at)
        dice.choice(workers).kill()
        stage.wait_over()
        assert driver.wait(90) == 0
        stage.stop_workers()
        figures = stage.check(hold=False)
        assert figures["runs"] == {"done": 100}
        assert figures["twice"] <= 8
        assert figures["ledger"].get("unknown", 0) <= 8
        stage.report(figures)
