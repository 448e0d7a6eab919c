"""`make demo`: what toolwire does, in one conversation."""

import sys

from calculator import SCRIPT, calc
from offline import converse, main

from toolwire import CLINotFoundError

print(
    "toolwire: Claude calls the functions of this very process. `add` and `divide` below are plain Python\n"
    "functions in examples/calculator.py.\n"
)
try:
    prompt = "What is 15 + 27? And 1 / 0?"
    main(converse(prompt, SCRIPT, mcp_servers={"calc": calc}, allowed_tools=["mcp__calc"]))
except CLINotFoundError as error:
    sys.exit(str(error))
print("\nNext: examples/weather.py, examples/email_agent.py, docs/guide.md; or this demo with --live.")
