"""Runs the paid API of the examples as a process, for the catalogue load.

python -m benchmarks.soak.api BOOK        appends a line to the file BOOK for every purchase

It prints its URL. Every line of its input is a JSON list of faults to produce; it exits when its input ends.
"""

import json
import sys

from benchmarks.processes import HERE

sys.path.insert(0, str(HERE.parent / "examples"))

from paid_api import Fault, PaidApi

BALANCE = "1000000"

if __name__ == "__main__":
    with PaidApi(balance=BALANCE, ledger=sys.argv[1]) as api:
        sys.stdout.write(f"{api.url}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            waiting = [fault for fault in api.faults if fault.times > 0]
            api.faults = waiting + [Fault(**each) for each in json.loads(line)]
            api.requests.clear()
