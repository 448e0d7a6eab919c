# Everything a clean clone needs, with Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
BENCH_STAMP := $(VENV)/.installed-bench
FUZZ_STAMP := $(VENV)/.installed-fuzz
DOCS_STAMP := $(VENV)/.installed-docs
BROWSER_STAMP := $(VENV)/.installed-browser
TRACING := build/tracing
# uv takes packages from its cache, in seconds. It does not read pip's settings (an index of your own): then pip does it.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python

.PHONY: help demo fast test slow real work conformance clients bench bench-quick check generate format clean
.PHONY: browser pictures documents faults batch-faults fuzz mutants soak clis pythons mcps tracing dist container docs
help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c requirements-dev.txt uv
	$(UV) -r requirements-dev.txt || $(PIP) -r requirements-dev.txt
	$(PIP) --no-build-isolation --no-deps -e .
	touch $(STAMP) $(DEMO_STAMP)

$(DEMO_STAMP): requirements-dev.txt pyproject.toml
	@echo "Installing toolwire and the Claude Code CLI into $(VENV), once: about a minute"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c requirements-dev.txt hatchling editables
	$(BIN)/python -m pip install --disable-pip-version-check -c requirements-dev.txt --no-build-isolation -e '.[cli]'
	touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)  ## a conversation with the real CLI and a scripted model: no key, no network
	@$(BIN)/toolwire demo --no-next-steps $(ARGS)
	@printf '\nPaid tools: a REST catalogue, sold by a sample API on this machine, with a budget of 1.5 cents\n\n'
	@$(BIN)/python examples/catalog_proxy.py
	@printf '\nNext:\n  .venv/bin/toolwire new shop      a project of your own, with tests\n'
	@printf '  .venv/bin/toolwire demo --live   the same with your own Claude\n  docs/guide.md                    your own functions as tools\n'

PYTEST := PYTHONHASHSEED=0 $(BIN)/python -m pytest -n 2
SLOW := tests/cli tests/batch tests/catalog tests/openapi tests/official tests/sessions/stores tests/testing/test_store_conformance.py tests/permissions/shell/test_commands_for_real.py
REAL := tests/real tests/differential

fast: $(STAMP)  ## under a minute: one event loop, few random examples, no processes; for every change
	$(PYTEST) --fast -q $(ARGS)

test: $(STAMP)  ## the tests, but for those of `make slow`, `make real` and `make batch-faults`
	$(PYTEST) $(SLOW:%=--ignore %) $(REAL:%=--ignore %) --ignore tests/batch_faults --ignore tests/browser $(ARGS)

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

$(BROWSER_STAMP): requirements-browser.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-browser.txt
	scripts/install_chromium.sh
	touch $(BROWSER_STAMP)

browser: $(BROWSER_STAMP)  ## the studio in a real browser: Chromium, from the system or Debian's package
	$(PYTEST) -q tests/browser $(ARGS)

pictures: $(BROWSER_STAMP)  ## the pictures of the documents, into docs/images; not in CI: fonts and times differ by machine
	$(BIN)/python scripts/pictures.py
	$(BIN)/python scripts/studio_pictures.py

$(BENCH_STAMP): requirements-bench.txt $(STAMP)
	$(UV) -r requirements-bench.txt || $(PIP) -r requirements-bench.txt
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

BATCH_SEEDS ?= 10

batch-faults: $(STAMP)  ## batches whose processes and databases are killed at random times, with BATCH_SEEDS (10) seeds
	BATCH_SEEDS=$(BATCH_SEEDS) $(PYTEST) -q tests/batch_faults $(ARGS)

$(FUZZ_STAMP): requirements-fuzz.txt $(STAMP)
	$(UV) -r requirements-fuzz.txt || $(PIP) -r requirements-fuzz.txt
	touch $(FUZZ_STAMP)

fuzz: $(FUZZ_STAMP)  ## fuzz parsers, tables and policies, FUZZ_SECONDS=60 each; ARGS="shell schema" for some
	PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

mutants: $(STAMP)  ## deliberate bugs, one at a time: named tests must catch each. ARGS="crossed-id" for some
	PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

SOAK_MINUTES ?= 30

documents: $(STAMP)  ## tools of the public OpenAPI documents that ship in npm packages, in build/documents (needs npm)
	$(BIN)/python tests/openapi/try_documents.py $(ARGS)

soak: $(BENCH_STAMP)  ## sessions, HTTP and a catalogue under load and faults for SOAK_MINUTES (30), into build/soak
	$(BIN)/python -m benchmarks.soak --minutes $(SOAK_MINUTES) $(ARGS)

clis: $(STAMP)  ## the tests of any CLI with the oldest one supported and the newest on npm, in build/clis (needs npm)
	PYTHONPATH=tests $(BIN)/python -m real.try_clis $(ARGS)

pythons: $(STAMP)  ## the fast tests with each supported Python that is found, in build/pythons
	$(BIN)/python tests/project/try_pythons.py $(ARGS)

$(DOCS_STAMP): requirements-docs.txt $(STAMP)
	$(UV) -r requirements-docs.txt || $(PIP) -r requirements-docs.txt
	touch $(DOCS_STAMP)

docs: $(DOCS_STAMP)  ## the documents as a site, into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

dist: $(STAMP)  ## wheel and sdist into dist/, the installed wheel tried without the checkout; URL=https://... of the repository, to publish
	PROJECT_URL=$(URL) $(BIN)/python tests/project/try_wheel.py $(ARGS)

container: $(STAMP)  ## build the Containerfile and try the image (needs podman); ARGS="--base debian" without a registry
	$(BIN)/python tests/project/try_container.py $(ARGS)

mcps: $(STAMP)  ## the tests that meet mcp, with older supported versions of it, in build/mcps
	$(BIN)/python tests/mcp/try_mcps.py $(ARGS)

$(TRACING)/.installed: requirements-tracing.txt pyproject.toml
	$(PYTHON) -m venv --clear $(TRACING)
	$(TRACING)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-tracing.txt
	$(TRACING)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

tracing: $(TRACING)/.installed  ## tracing libraries and their own test suites on the official package and on toolwire, in build/tracing
	PYTHONHASHSEED=0 $(TRACING)/bin/python -m pytest -q -p no:cacheprovider -p no:asyncio tests/tracing $(ARGS)
