"""The definition of a batch is checked when it is written."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from toolwire import ClaudeAgentOptions
from toolwire.batch import Batch, Run
from toolwire.batch.definition import check_key
from toolwire.errors import BatchError, OptionsError

pytestmark = pytest.mark.anyio


class Verdict(BaseModel):
    ok: bool


@dataclass
class Repo:
    name: str
    stars: int = 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": ""}, "printable string"),
        ({"name": "x" * 201}, "1 to 200"),
        ({"name": "a\nb"}, "printable"),
        ({"name": 5}, "printable"),
        ({"options": {}}, "options must be ClaudeAgentOptions, got dict"),
        ({"options": ClaudeAgentOptions(resume="x")}, "options.resume cannot be set in a batch"),
        ({"options": ClaudeAgentOptions(persist_session=False), "on_lost": "resume"}, "needs transcripts"),
        ({"concurrency": 0}, "concurrency must be an integer of at least 1, got 0"),
        ({"concurrency": True}, "concurrency must be an integer"),
        ({"attempts": 0}, "attempts must be"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds above 0"),
        ({"silence": "x"}, "silence must be a number of seconds"),
        ({"on_lost": "retry"}, "on_lost must be one of hold, resume, again, got 'retry'"),
        ({"budget": "5"}, "budget needs per_run"),
        ({"budget": "5", "per_run": "6"}, "no run fits"),
        ({"per_run": "0"}, "per_run must be more than 0"),
        ({"per_run": "a lot"}, "per_run: an amount must be a number"),
        ({"per_run": -1}, "must not be negative"),
        ({"output_type": "Verdict"}, "output_type must be a type"),
        (
            {
                "output_type": Verdict,
                "options": ClaudeAgentOptions(
                    output_format={"type": "json_schema", "schema": {"type": "object"}}
                ),
            },
            "use only one",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(given, says):
    """The message says what is wrong, and shows the value."""
    with pytest.raises(OptionsError, match=says):
        Batch(**{"name": "b", **given})


@pytest.mark.parametrize(
    ("prompt", "changes", "says"),
    [
        ("", {}, "prompt must be a non-empty string"),
        (5, {}, "prompt must be a non-empty string"),
        ("x", {"modell": "y"}, "no option 'modell'; did you mean model"),
        ("x", {"session_id": "y"}, "session_id cannot be changed"),
        ("x", {"output_format": {}}, "output_format cannot be changed"),
    ],
)
def test_a_run_that_cannot_work_is_refused(prompt, changes, says):
    """A wrong option is found where the run is made."""
    with pytest.raises(OptionsError, match=says):
        Run(prompt, **changes)


@pytest.mark.parametrize("key", ["", "x" * 501, 5, None, "a\0b", "\ud800"])
def test_a_key_is_a_text_that_every_database_can_keep(key):
    """Other keys are refused before anything is written."""
    with pytest.raises(BatchError, match="the key of a run must be"):
        check_key(key)


async def test_items_come_back_as_the_type_that_the_task_names():
    """Dataclasses, models and plain JSON are stored as JSON; a worker gets the type of the task's annotation."""
    batch = Batch("b")
    seen: list[Any] = []

    @batch.task
    async def prepare(repo: Repo) -> Run:
        seen.append(repo)
        return Run(f"Look at {repo.name}", model="m")

    text = batch.encode("k", {"name": "x", "stars": "3"})
    assert (await batch.prepare("k", text)).prompt == "Look at x"
    assert seen == [Repo("x", 3)]


@pytest.mark.parametrize("item", [{"stars": 1}, object(), {"name": {1, 2}}, float("nan")])
def test_an_item_that_does_not_fit_is_refused_when_it_is_added(item):
    """The item is checked when it is added, not hours later in a worker."""
    batch = Batch("b")
    batch.task(lambda repo: repo)
    typed = Batch("c")

    @typed.task
    def prepare(repo: Repo) -> Run:
        return Run(repo.name)

    with pytest.raises(BatchError, match="the item of 'k' is not valid"):
        typed.encode("k", item)


def test_without_a_task_an_item_is_a_prompt():
    """An item of another type raises an error that says what is missing."""
    batch = Batch("b")
    assert batch.encode("k", "Hello") == '"Hello"'
    with pytest.raises(BatchError, match="has no @batch.task"):
        batch.encode("k", {"a": 1})
    with pytest.raises(BatchError, match="the item of 'k' is an empty prompt"):
        batch.encode("k", " ")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda: None, "must take exactly one item"),
        (lambda a, b: None, "must take exactly one item"),
        (5, "needs a function"),
    ],
)
def test_a_task_takes_one_item(function, says):
    """Other functions are refused when they are registered."""
    with pytest.raises(OptionsError, match=says):
        Batch("b").task(function)


def test_a_batch_has_one_task():
    """A second one would never be called."""
    batch = Batch("b")
    batch.task(Run)
    with pytest.raises(OptionsError, match="has a task already"):
        batch.task(Run)


async def test_a_task_must_return_a_run():
    """The message shows the returned type and the key."""
    batch = Batch("b")
    batch.task(lambda item: 5)
    with pytest.raises(BatchError, match="must return a Run or a prompt, got int for 'k'"):
        await batch.prepare("k", '"x"')


def test_a_run_may_cost_no_more_than_per_run():
    """The CLI stops at the smaller of both limits, and a run's own options win over the batch's."""
    batch = Batch("b", ClaudeAgentOptions(model="a", max_budget_usd=5), per_run="2")
    options = batch.options_for(Run("x", model="b"))
    assert (options.max_budget_usd, options.model) == (2.0, "b")
    assert batch.options_for(Run("x", max_budget_usd=1)).max_budget_usd == 1
    assert batch.options.model == "a"


def test_a_session_id_is_known_before_the_start():
    """It depends on the batch, the key and the attempt, and on nothing else."""
    batch = Batch("b")
    ids = {batch.session_of(uid, key, n) for uid in "uv" for key in "ab" for n in (1, 2)}
    assert len(ids) == 8
    assert batch.session_of("u", "a", 1) in ids


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_on_trio_it_says_that_it_needs_asyncio():
    """The engine runs on asyncio only."""
    with pytest.raises(BatchError, match="asyncio only"):
        async with Batch("b").open():
            pass
