PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
# One thread a process: parallelism comes from processes, and results do not depend on the core count.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all check fmt bench

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps byzfl
	touch $@

demo: setup
	$(BIN)/snowball demo

test: setup
	$(BIN)/pytest -n 2

test-all: setup
	$(BIN)/pytest -n 2 -m ''

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/snowball bench elections --json > benchmarks/results/elections.json
