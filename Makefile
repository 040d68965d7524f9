# Everything runs from .venv, which `make setup` makes from the lock file: with uv where it is
# installed, else with venv and pip. No target needs root, Docker or a key.
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.installed
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
TESTS ?= tests
JOBS ?= 2

.PHONY: setup demo test lint types unit integration docs lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Hocket needs Python 3.11 or later." >&2; exit 1; }
	@if command -v uv >/dev/null; then \
		uv venv --quiet --clear --python "$(PYTHON)" .venv && \
		uv pip install --quiet --python .venv --require-hashes -r requirements.lock && \
		uv pip install --quiet --python .venv --no-deps --no-build-isolation -e . ; \
	else \
		"$(PYTHON)" -m venv --clear .venv && \
		$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
			--require-hashes -r requirements.lock && \
		$(PY) -m pip install --quiet --disable-pip-version-check --no-deps \
			--no-build-isolation -e . ; \
	fi
	@touch $(STAMP)

demo: setup
	@.venv/bin/hocket demo

test: setup lint types
	$(PY) -m pytest -q -n $(JOBS) $(TESTS)

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports

types: setup
	.venv/bin/mypy

unit: setup
	$(PY) -m pytest -q tests/unit

integration: setup
	$(PY) -m pytest -q -n $(JOBS) tests/contract tests/integration

lock:
	uv pip compile pyproject.toml --group dev --extra triton --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
