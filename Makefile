# Every target sets up what it needs: a fresh clone needs python3 (3.11 or newer) and make. `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
UV_VERSION := 0.13.7

# Arguments of one run: make demo DEMO_ARGS=..., make bench BENCH_ARGS=..., make pytest PYTEST_ARGS="-k zones".
DEMO_ARGS ?=
BENCH_ARGS ?=
PYTEST_ARGS ?=
CRASH_ARGS ?=
FUZZ_ARGS ?=
IMAGE_ARGS ?=
IMAGE ?= promising

# What has no array access of its own to check: text, expressions over Arrow, statistics over many trials, processes.
UNCOMPILED := $(addprefix --ignore=tests/,sql docs promising benchmarks proto e2e conformance index/storage crash formats loaders \
  query/test_expressions.py query/test_expr_duckdb.py query/test_estimators.py \
  $(addprefix query/standing/test_,standing_binder.py labels.py oracle.py standing_truth.py chaos.py) \
  query/test_estimates.py query/test_bad_input.py)

# Tests of one file stay together: they share what is expensive to start. Files run in their order: by the number of their
# tests, as xdist would sort them, those that start a cluster would come last, one core idle. Where bytecode is not
# written, each of the hundreds of processes that tests start would compile the tree anew.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --numprocesses=auto --dist=loadfile --no-loadscope-reorder

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Create .venv with the locked versions; does nothing while they are installed

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 setup" >&2; exit 1; }
	@echo "Installing the locked versions into $(VENV) (about 1.2 GB, Spark included; a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --editable .
	@$(PIP) check
	@echo "Compiling the kernels, once (a minute)"
	@$(BIN)/promising warmup
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Start a service, load a retail log, replay its end live, ask questions; write a page of pictures
	@$(BIN)/python -m promising.demo $(DEMO_ARGS)

.PHONY: test
test: $(STAMP) java ## Everything quick: style, types, layers, the wire contract, docstrings, the main paths (five minutes)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check test-quick

.PHONY: test-quick
test-quick: $(STAMP) java ## The quick tier of the tests alone
	$(PYTEST) --tier quick $(PYTEST_ARGS)

.PHONY: test-deep
test-deep: $(STAMP) java ## The rest: deep tests, more random examples, bounds checks, kernels as plain Python (twenty minutes)
	$(PYTEST) --tier deep $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory test-boundscheck test-nojit

.PHONY: test-long
test-long: crash fuzz soak ## By hand: crashes, damaged files, mutated inputs, a soak, random standing queries, loads (three hours)
	$(BIN)/python -m tests.query.standing.truth
	$(BIN)/python -m tests.loaders.equal

.PHONY: check
check: $(STAMP) proto-check ## Style (ruff), types (mypy), layers (import-linter), the wire contract, the examples in docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --quiet --doctest-modules promising

.PHONY: pytest
pytest: $(STAMP) java ## All tests of both tiers, or those that PYTEST_ARGS names
	$(PYTEST) $(PYTEST_ARGS)

.PHONY: test-nojit
test-nojit: $(STAMP) ## The kernel tests with the kernels as plain Python
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m kernel $(PYTEST_ARGS)

.PHONY: test-boundscheck
test-boundscheck: $(STAMP) java ## The tests that reach kernels, with every array access checked
	NUMBA_BOUNDSCHECK=1 $(BIN)/promising warmup
	NUMBA_BOUNDSCHECK=1 $(PYTEST) $(UNCOMPILED) $(PYTEST_ARGS)

.PHONY: bench
bench: $(STAMP) ## Measure the index: insert, probe against DuckDB, bytes per tuple, memory over time
	@$(BIN)/python -m benchmarks.index $(BENCH_ARGS)

.PHONY: bench-query
bench-query: $(STAMP) ## Measure queries: best rows first, whole joins, sampled sums, many selections, kept budgets (10 GB)
	@$(BIN)/python -m benchmarks.query $(BENCH_ARGS)

.PHONY: bench-service
bench-service: $(STAMP) ## Measure the service: ingest, latency, many queries at once, what stays behind (half an hour)
	@$(BIN)/python -m benchmarks.service $(BENCH_ARGS)

.PHONY: bench-storage
bench-storage: $(STAMP) ## Measure the store on disk: ingest, restart, cold tuples, memory of 100 million tuples (half an hour)
	@$(BIN)/python -m benchmarks.storage $(BENCH_ARGS)

.PHONY: bench-standing
bench-standing: $(STAMP) ## Measure standing queries: freshness, messages, stores, thousands of selections, overload
	@$(BIN)/python -m benchmarks.standing $(BENCH_ARGS)

.PHONY: bench-spark
bench-spark: $(STAMP) java ## Measure loads by Spark: rows a second, skew, bytes that a join reads; 20 million rows (half an hour)
	@$(BIN)/python -m benchmarks.spark $(BENCH_ARGS)

.PHONY: paper
paper: $(STAMP) ## The paper's Figures 9 to 16, and STRUCTURE auto, over three seeds: tables, plots, goals (a quarter of an hour)
	@$(BIN)/python -m benchmarks.paper $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: $(STAMP) java ## The same work on DuckDB, Polars, chDB, Pathway, Bytewax, Flink and Spark, an environment each (half an hour)
	@$(BIN)/python -m benchmarks.peers $(BENCH_ARGS)

.PHONY: crash
crash: $(STAMP) ## Kill a store at work 500 times, fail every call of its disk, damage its files 10,000 times (half an hour)
	@$(BIN)/python -m tests.crash $(CRASH_ARGS)
	FAULT_STRIDE=1 $(BIN)/pytest --quiet tests/index/storage/test_faults.py
	@$(BIN)/python -m tests.index.storage.flips

# Where a gap would lose a tuple or add one twice: which batches are in, how zones collapse, how a log is read back.
EVERY_BRANCH := index/ledger.py,index/coarse.py,index/fine.py,index/zone.py,index/geometry.py,index/storage/replay.py,index/storage/segments.py,index/storage/wal.py

.PHONY: fuzz
fuzz: $(STAMP) ## 100,000 mutated inputs each: statements, Arrow, requests, log, images, cold files, tokens (an hour)
	@$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

.PHONY: soak
soak: $(STAMP) ## 100,000 cancelled streams, thousands of slow readers, 256 clients that want all memory (an hour)
	@$(BIN)/python -m benchmarks.service soak memory $(BENCH_ARGS)

.PHONY: coverage
coverage: $(STAMP) ## Branch coverage of the store: at least 95 %, and all of dedup, collapse and recovery (ten minutes)
	$(BIN)/coverage run -m pytest --quiet tests/index tests/formats
	$(BIN)/coverage report --include="index/storage/*" --fail-under=95 --show-missing
	$(BIN)/coverage report --include="$(EVERY_BRANCH)" --fail-under=100 --show-missing

.PHONY: format
format: $(STAMP) ## Let ruff format the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: proto
proto: $(STAMP) ## Generate promising/v1 from proto/
	scripts/generate-proto.sh

.PHONY: proto-check
proto-check: $(STAMP) ## The wire contract: lint, layout, nothing broken, generated code fresh
	scripts/check-proto.sh

.PHONY: proto-keep
proto-keep: $(STAMP) ## Keep the wire contract as it is now as the one that later changes must not break
	$(BIN)/buf build proto --as-file-descriptor-set --exclude-source-info --output tests/proto/testdata/promising_v1.binpb

.PHONY: java
java: ## Make sure that Java 17 or newer is there, for the tests that ask Spark
	@scripts/ensure-java.sh

.PHONY: lock
lock: ## Resolve pyproject.toml anew into requirements.lock, for every Python from 3.11 on
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet uv==$(UV_VERSION)
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --fork-strategy fewest --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade --quiet --output-file requirements.lock
	@$(PIP) uninstall --quiet --yes uv

.PHONY: image
image: ## Build the container image with buildah; another base: IMAGE_ARGS="--build-arg BASE=..." (some minutes)
	buildah build --format docker --file deploy/Containerfile --tag $(IMAGE) $(IMAGE_ARGS) .

.PHONY: clean
clean: ## Remove .venv and every cache in the tree
	rm -rf $(VENV) build dist htmlcov .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
