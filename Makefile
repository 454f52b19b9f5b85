# Entry points. Needs only Python 3.11 or newer; every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# More BLAS threads than cores to spare make everything slower on a busy machine.
export OPENBLAS_NUM_THREADS := 1
# How many processes share the tests; each has a PostgreSQL of its own.
WORKERS ?= 2
# The inner loop: whatever needs neither a server nor another process, and one session from start to end.
QUICK := tests/arch tests/domain tests/rank tests/text tests/settings tests/model/test_ranker.py \
  tests/engine/sessions/test_session_pipe.py

.PHONY: help setup run quick test e2e check format bench soak lock clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything inside

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Meritory needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install -q -c constraints.txt -e '.[dev]' || \
	  $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: setup ## the demo in one minute, then the daemon is up
	@$(BIN)/meritory demo
	@$(BIN)/meritory up --background
	@$(BIN)/meritory status
	@echo "It serves hooks, agents and programs; stop it with $(BIN)/meritory down"

check: setup ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

quick: check ## lint, types, pure tests and one flow, in about a minute
	@$(BIN)/python -m pytest $(QUICK) -n $(WORKERS) --hypothesis-profile quick

test: check ## everything that must hold
	@$(BIN)/python tools/browser.py || true
# File by file, in order: the last files are small, so that both processes finish at about the same time.
# A process that crashes ends the run: xdist would wait without end for its replacement.
	@$(BIN)/python -m pytest --ignore tests/browser \
	  -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Separate, because the browser's driver brings greenlets and its own event loop into the process.
	@$(BIN)/python -m pytest tests/browser

e2e: setup ## every real client against a scripted model, with a table of what came of it
	@$(BIN)/python tools/clients.py
	@MERITORY_TEST_E2E=all $(BIN)/python -m pytest tests/e2e

format: setup ## make it tidy
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: setup ## quality and speed, printed and kept in bench/results
	@$(BIN)/python -m bench

soak: setup ## a year of use on a fake clock: size, speed, retention (hours; SIZE=tenth, SIZE=small)
	@$(BIN)/python -m bench.soak --size $(or $(SIZE),full)

lock: setup ## renew constraints.txt from pyproject.toml
	@$(BIN)/uv pip compile -q --extra dev --no-header --no-annotate --upgrade pyproject.toml -o constraints.txt

clean: ## remove what setup and the tools made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
