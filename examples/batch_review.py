"""Many runs as a batch: a budget, typed results, and a second start that continues where the first one stopped.

Runs offline: the real CLI, with a scripted model on loopback. Without `environment` it uses your own account.
"""

import asyncio
import tempfile
import time

from pydantic import BaseModel

from toolwire import ClaudeAgentOptions
from toolwire.batch import Batch, Run
from toolwire.testing import ClaudeEnvironment, ScriptedModel, answer


class Verdict(BaseModel):
    """The result of a review."""

    ok: bool
    why: str


async def main() -> None:
    """Review three repositories, in two starts."""
    began = time.monotonic()
    script = [answer({"ok": True, "why": "It is short."})] * 3
    with tempfile.TemporaryDirectory() as place:
        async with ScriptedModel(script) as model, ClaudeEnvironment(model) as environment:
            review = Batch(
                "review",
                ClaudeAgentOptions(**environment.options_kwargs(), setting_sources=[]),
                Verdict,
                concurrency=2,
                budget="5",
                per_run="0.5",
                timeout=60,
            )

            @review.task
            def prepare(name: str) -> Run:
                return Run(f"Review {name}.", max_turns=5)

            for names in (("api", "web"), ("api", "web", "docs")):  # the second start runs only what is new
                async with review.open(place, poll=0.2) as batch:
                    new = await batch.add({name: name for name in names})
                    print(f"{new} new")
                    async for done in batch.results():
                        print(f"Claude: {done.key} {done.state}: {done.output} (${done.cost})")
                    print(f"${batch.progress.spent} of ${batch.progress.budget} spent")
    print(f"done in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
