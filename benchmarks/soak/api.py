"""The paid API of the examples as a process for the catalogue load.

python -m benchmarks.soak.api BOOK        BOOK gets a line for every purchase

It says where it is. Every line of its input is a list of faults to come, as JSON; it ends with its input.
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
