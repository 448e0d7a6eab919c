"""When a run is over: decided by frames and times alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire._protocol.run import DROPPED, GRACE, Run

RESULT = {"type": "result", "subtype": "success"}
ASSISTANT = {"type": "assistant", "parent_tool_use_id": None}
INIT = {"type": "system", "subtype": "init"}


def state(name):
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def task(subtype, task_id="t1", **rest):
    return {"type": "system", "subtype": subtype, "task_id": task_id, **rest}


def after(*frames, prompts=1, ceiling=600.0):
    """Return a run that saw these frames, one a second from 1 on, after its prompts at 0."""
    run = Run(ceiling)
    for _ in range(prompts):
        run.prompted(0.0)
    for now, frame in enumerate(frames, start=1):
        run.feed(frame, float(now))
    return run


def test_nothing_asked_nothing_owed():
    """Without a prompt there is nothing to wait for."""
    assert Run().over_at() == 0.0


def test_a_prompt_waits_for_its_result():
    """A prompt without a result has no end time, and counts as unanswered."""
    run = after(state("running"), INIT, ASSISTANT)
    assert run.over_at() is None
    assert run.unanswered
    assert run.busy


def test_result_then_idle_is_over():
    """The plain case ends at the idle state."""
    run = after(state("running"), INIT, ASSISTANT, RESULT, state("idle"))
    assert run.over_at() == 5.0
    assert not run.unanswered
    assert not run.busy


def test_idle_just_before_the_result_is_over_too():
    """Some hosts report idle before the result."""
    assert after(state("running"), ASSISTANT, state("idle"), RESULT).over_at() == 4.0


def test_an_older_cli_is_over_at_its_result():
    """Without state reports, the result ends the run."""
    assert after(INIT, ASSISTANT, RESULT).over_at() == 3.0


def test_running_after_the_result_waits_for_the_ceiling():
    """Background work keeps the state at running: wait for idle, but not for ever."""
    run = after(state("running"), ASSISTANT, RESULT)
    assert run.over_at() == 3.0 + 600.0
    run.feed(state("idle"), 50.0)
    assert run.over_at() == 50.0


def test_a_ceiling_of_none_never_ends():
    """The ceiling can be switched off."""
    assert after(state("running"), RESULT, ceiling=None).over_at() is None


def test_another_turn_stops_the_clock():
    """A turn that begins after a result must end before the run can."""
    run = after(state("running"), RESULT, ASSISTANT)
    assert run.over_at() is None
    run.feed(RESULT, 9.0)
    run.feed(state("idle"), 10.0)
    assert run.over_at() == 10.0


def test_requires_action_stops_the_clock():
    """While the CLI waits for the host, the run is not over."""
    assert after(RESULT, state("requires_action")).over_at() is None


def test_a_subagents_message_is_no_turn():
    """Frames of subagents do not reopen the main turn."""
    run = after(RESULT, {"type": "assistant", "parent_tool_use_id": "toolu_1"}, state("idle"))
    assert run.over_at() == 3.0


def test_a_background_agent_holds_the_run_of_an_older_cli():
    """With no state reports, a running agent is what keeps the run open, until either of its ends."""
    for ending in (
        task("task_notification", status="completed"),
        task("task_updated", patch={"status": "killed"}),
    ):
        run = after(task("task_started", task_type="local_agent"), RESULT)
        assert run.over_at() is None
        run.feed(task("task_updated", patch={"status": "running"}), 3.0)
        assert run.over_at() is None
        run.feed(ending, 7.0)
        assert run.over_at() == 7.0


def test_a_background_shell_is_not_waited_for():
    """A dev server may run for ever."""
    assert after(task("task_started", task_type="local_bash"), RESULT).over_at() == 2.0


def test_a_result_of_an_earlier_prompt_leaves_a_grace():
    """Two prompts, one result: the second may be merged into the first turn, or about to start."""
    run = after(RESULT, state("idle"), prompts=2)
    assert run.over_at() == 2.0 + GRACE
    run.feed(INIT, 3.0)
    assert run.over_at() is None
    run.feed(RESULT, 4.0)
    run.feed(state("idle"), 5.0)
    assert run.over_at() == 5.0


def test_a_prompt_after_the_end_reopens_the_run():
    """Each prompt needs a result of its own."""
    run = after(RESULT, state("idle"))
    run.prompted(10.0)
    assert run.over_at() == 10.0 + DROPPED
    run.feed(state("running"), 11.0)
    assert run.over_at() is None


def test_the_result_of_an_injected_turn_answers_no_prompt():
    """The result of a task notification does not count as the result of the user's prompt."""
    injected = {**RESULT, "origin": {"kind": "task-notification"}}
    assert after(injected, state("idle")).over_at() == 2.0 + GRACE


odd = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.none(), max_size=1)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["system", "result", "assistant", "x"]) | odd},
            optional={
                "subtype": st.sampled_from(["init", "session_state_changed", "task_started", "task_updated"])
                | odd,
                "state": st.sampled_from(["idle", "running"]) | odd,
                "task_id": odd,
                "task_type": odd,
                "origin": odd | st.dictionaries(st.just("kind"), odd),
                "patch": odd | st.dictionaries(st.just("status"), odd),
            },
        ),
        max_size=10,
    )
)
def test_no_frame_is_fatal(frames):
    """Whatever the frames hold, over_at() raises nothing."""
    after(*frames).over_at()


def test_no_result_is_due_when_nothing_was_asked():
    """A caller that waits for one gives up after a grace period, counted from its start or from the last frame."""
    assert Run().result_due(7.0) == 7.0 + GRACE
    assert after(state("running"), RESULT, state("idle")).result_due(0.0) == 3.0 + GRACE
    assert after(INIT, RESULT).result_due(1.0) == 2.0 + GRACE


def test_a_result_is_due_while_anything_goes_on():
    """A prompt, a turn, a permission request and any background task may all lead to one."""
    assert after().result_due(0.0) is None
    assert after(RESULT, ASSISTANT).result_due(0.0) is None
    assert after(RESULT, state("requires_action")).result_due(0.0) is None
    assert after(RESULT, state("running")).result_due(0.0) is None
    for kind in ("local_agent", "local_bash", None):
        run = after(task("task_started", task_type=kind), RESULT, state("idle"))
        assert run.result_due(0.0) is None
        run.feed(task("task_notification"), 100.0)
        assert run.result_due(0.0) == 100.0 + GRACE


def test_a_prompt_that_an_idle_cli_dropped_is_due_no_more():
    """It counts as dropped after the same time as at the end of a run."""
    assert after(state("idle")).result_due(0.0) == 1.0 + DROPPED


def test_a_queued_prompt_is_due_a_result_until_it_counts_as_dropped():
    """The CLI may have answered two prompts with one result."""
    assert after(RESULT, state("idle"), prompts=2).result_due(0.0) == 2.0 + DROPPED


def test_an_interrupt_before_its_turn_is_repeated():
    """The CLI may ignore one that it reads between the prompt and the beginning of the turn."""
    run = after(state("running"))
    run.interrupted()
    assert not run.must_interrupt_again
    run.feed(INIT, 2.0)
    assert run.must_interrupt_again


@pytest.mark.parametrize("frames", [[INIT], [INIT, ASSISTANT], [INIT, ASSISTANT, RESULT]])
def test_an_interrupt_of_a_turn_is_not_repeated(frames):
    """Nor is one after its end."""
    run = after(*frames)
    run.interrupted()
    run.feed(INIT, 9.0)
    assert not run.must_interrupt_again


def test_an_interrupt_is_never_repeated_in_another_turn():
    """It could stop a prompt that was sent later, or that is to run next."""
    run = after()
    run.interrupted()
    run.feed(RESULT, 1.0)  # of a prompt that a hook blocked
    run.prompted(2.0)
    run.feed(INIT, 3.0)
    assert not run.must_interrupt_again
    run = after(prompts=2)
    run.interrupted()
    run.feed(INIT, 1.0)
    assert not run.must_interrupt_again
