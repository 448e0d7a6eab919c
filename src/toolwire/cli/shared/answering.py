"""What a tool asks of its user while `toolwire call` runs it: the questions of `_asking`, beside an event loop."""

import sys
from collections.abc import Awaitable, Callable

from toolwire.cli.shared.progress import Progress
from toolwire.tools.elicitation import ElicitationRequest, ElicitationResult


def elicited(progress: Progress) -> Callable[[ElicitationRequest], Awaitable[ElicitationResult]]:
    """The callback for elicitations of a command. The bar makes way for the questions."""

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        import anyio.to_thread  # noqa: PLC0415 - heavy, as is what follows
        from rich.console import Console  # noqa: PLC0415

        from toolwire.cli.shared.questions import Asker  # noqa: PLC0415

        console = Console(stderr=True, highlight=False)

        def typed(prompt: str, *, remember: bool = False) -> str:
            del remember
            console.out(prompt, end="", highlight=False)
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")

        progress.hide()
        asker = Asker(console, console, typed if sys.stdin.isatty() else None)
        return await anyio.to_thread.run_sync(asker.elicitation, request, abandon_on_cancel=True)

    return answer
