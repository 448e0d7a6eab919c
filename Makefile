# Everything a clean clone needs, with Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
FUZZ_STAMP := $(VENV)/.installed-fuzz

.PHONY: help demo fast test slow real work conformance clients bench bench-quick check generate format clean
.PHONY: faults fuzz mutants soak clis pythons
help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $(STAMP)

demo: $(STAMP)  ## a conversation with the real CLI and a scripted model: no key, no network
	$(BIN)/toolwire demo $(ARGS)
	$(BIN)/python examples/catalog_proxy.py

PYTEST := PYTHONHASHSEED=0 $(BIN)/python -m pytest -n 2
SLOW := tests/cli tests/catalog tests/project/test_docs_console.py tests/permissions/shell/test_commands_for_real.py
REAL := tests/real tests/differential

fast: $(STAMP)  ## under a minute: one event loop, few random examples, no processes; for every change
	$(PYTEST) --fast -q $(ARGS)

test: $(STAMP)  ## the tests, but for those of `make slow` and `make real`
	$(PYTEST) $(SLOW:%=--ignore %) $(REAL:%=--ignore %) $(ARGS)

slow: $(STAMP)  ## the tests of the command, serving, catalogues and shell lines, which start many processes
	$(PYTEST) $(SLOW) $(ARGS)

real: $(STAMP)  ## the tests with the real CLI, and side by side with the official SDK
	$(PYTEST) $(REAL) $(ARGS)

work: $(STAMP)  ## counted work of the hot paths against tests/work/budgets.toml; ARGS=--update records it
	$(BIN)/python -m benchmarks.work $(ARGS)

conformance: $(STAMP)  ## the official MCP conformance suites against examples/everything.py (needs npm)
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/conformance $(ARGS)

clients: $(STAMP)  ## the MCP Inspector and the official TypeScript clients against toolwire serve (needs npm)
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/clients $(ARGS)

$(BENCH_STAMP): requirements-bench.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	touch $(BENCH_STAMP)

bench: $(BENCH_STAMP)  ## toolwire beside its peers, into docs/benchmarks; on an idle machine. ARGS="calls stream" for some suites
	$(BIN)/python -m benchmarks --out docs/benchmarks $(ARGS)

bench-quick: $(BENCH_STAMP)  ## the same in short, into build/bench-quick: to see that it works
	$(BIN)/python -m benchmarks --quick --out build/bench-quick $(ARGS)

check: $(STAMP)  ## lint, format, generated files, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/generate.py --check
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python

generate: $(STAMP)  ## write the files that follow from the source: stubs, lists of hook events, docs/options.md
	$(BIN)/python scripts/generate.py

format: $(STAMP)  ## write the format that check wants
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

clean:  ## remove what was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

faults: $(STAMP)  ## every fault at every step of a conversation, and cancellation at every await
	$(PYTEST) -n 4 -q tests/faults $(ARGS)

$(FUZZ_STAMP): requirements-fuzz.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-fuzz.txt
	touch $(FUZZ_STAMP)

fuzz: $(FUZZ_STAMP)  ## fuzz parsers, tables and policies, FUZZ_SECONDS=60 each; ARGS="shell schema" for some
	PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

mutants: $(STAMP)  ## deliberate bugs, one at a time: named tests must catch each. ARGS="crossed-id" for some
	PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

SOAK_MINUTES ?= 30

soak: $(BENCH_STAMP)  ## sessions, HTTP and a catalogue under load and faults for SOAK_MINUTES (30), into build/soak
	$(BIN)/python -m benchmarks.soak --minutes $(SOAK_MINUTES) $(ARGS)

clis: $(STAMP)  ## the tests of any CLI with the oldest one supported and the newest on npm, in build/clis (needs npm)
	PYTHONPATH=tests $(BIN)/python -m real.try_clis $(ARGS)

pythons: $(STAMP)  ## the fast tests with each supported Python that is found, in build/pythons
	$(BIN)/python tests/project/try_pythons.py $(ARGS)
