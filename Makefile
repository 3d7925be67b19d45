# Every target creates its own .venv; only Python 3.11, pip and make are required.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEQLOOM_DATA ?= $(if $(wildcard ../shared/data),$(abspath ../shared/data),)
export SEQLOOM_DATA
TORCH := torch==2.13.0
STAMP := $(VENV)/.ready
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$n)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow parity browser check shape format docs bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

# The output of pip is shown only if it fails.
quietly = @$(1) >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log >&2; echo "failed: $(1)" >&2; exit 1; }

# venv creates pip last: without it, the creation was interrupted.
$(BIN)/python $(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Seqloom needs Python 3.11 or newer; {sys.executable} is {v.major}.{v.minor}. Use another one: make PYTHON=python3.12")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python -a -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)

# The exact version of the CPU build of torch is installed first, so that no version range selects a CUDA build.
$(STAMP): $(BIN)/python $(BIN)/pip pyproject.toml
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	$(call quietly,$(BIN)/pip install --upgrade 'pip>=25.1')
	$(call quietly,$(BIN)/pip install $(TORCH))
	$(call quietly,$(BIN)/pip install --group dev --editable .)
	@touch $@

$(VENV)/.parity: $(STAMP)
	$(call quietly,$(BIN)/pip install --group parity)
	@$(BIN)/pip install --quiet --group parity-compiled || \
	  echo "kenlm could not be built (it needs cmake, g++ and Python.h): its tests will be skipped. To retry: rm $@" >&2
	@touch $@

demo: $(STAMP) ## train a small English-German translator on the included corpus (about three minutes)
	$(BIN)/seqloom demo --out runs/demo

# Each worker starts with consecutive tests, so that most shared fixtures are built once.
PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal

test: $(STAMP) ## run the fast tests
	$(PYTEST) -m 'not slow and not parity and not browser' tests

test-slow: $(STAMP) ## run the slow tests: learning runs, long loops, all examples of each law
	SEQLOOM_THOROUGH=1 $(PYTEST) -m 'slow or (hypothesis and not parity)' --timeout 3600 tests

parity: $(VENV)/.parity ## run the comparisons with other libraries
	$(BIN)/pytest -n $(JOBS) -m 'parity and not slow' -rfEs tests

$(VENV)/.browser: $(STAMP)
	$(call quietly,$(BIN)/pip install --group browser)
	@touch $@

# One Chromium at a time: each test has it to itself.
browser: $(VENV)/.browser ## try the page of the server in the Chromium of this system
	$(BIN)/pytest -m browser -rfEs --timeout 900 tests/browser

check: $(STAMP) ## check format, lint, types, layers, import cycles
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/shape.py --check

shape: $(STAMP) ## print size of the package, reach of imports, files that a sentence visits
	$(BIN)/python tools/shape.py

format: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## build the documentation into site/
	$(call quietly,$(BIN)/pip install --editable '.[docs]')
	$(BIN)/mkdocs build --strict

bench: $(STAMP) ## compare speed with other systems, write docs/benchmarks.md
	$(BIN)/python benchmarks/run_all.py

clean: ## remove the environment and the built pages
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
