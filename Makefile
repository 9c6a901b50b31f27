PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
FLOWER := .venv-flower
NVFLARE := .venv-nvflare
DOCS := .venv-docs
# One thread per process: parallelism comes from processes, and results do not depend on the core count.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all test-flower test-nvflare check fmt bench docs

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

# Flower needs other versions than the tools here, so it gets its own environment.
$(FLOWER)/installed: pyproject.toml constraints.txt constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	grep --invert-match --extended-regexp '^(typer|rich)==' constraints.txt > $(FLOWER)/constraints.txt
	cat constraints-flower.txt >> $(FLOWER)/constraints.txt
	$(FLOWER)/bin/pip install --quiet --constraint $(FLOWER)/constraints.txt torch
	$(FLOWER)/bin/pip install --quiet --constraint $(FLOWER)/constraints.txt --editable '.[dev,flower]'
	touch $@

test-flower: $(FLOWER)/installed
	$(FLOWER)/bin/pytest -m '' tests/integrations/flower tests/sweeps/test_sweep_ray.py tests/test_docs.py

# NVFlare needs a newer protobuf than Flower allows, so it gets its own environment too.
$(NVFLARE)/installed: pyproject.toml constraints.txt constraints-nvflare.txt
	$(PYTHON) -m venv $(NVFLARE)
	$(NVFLARE)/bin/pip install --quiet --constraint constraints.txt torch
	$(NVFLARE)/bin/pip install --quiet --constraint constraints.txt --constraint constraints-nvflare.txt --editable '.[dev,nvflare]'
	touch $@

test-nvflare: $(NVFLARE)/installed
	$(NVFLARE)/bin/pytest -m '' tests/integrations/nvflare

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/snowball bench elections --json > benchmarks/results/bench-elections.json
	$(BIN)/snowball bench training --json > benchmarks/results/bench-training.json

$(DOCS)/installed: constraints-docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --constraint constraints-docs.txt mkdocs-material 'mkdocstrings[python]' ruff
	touch $@

# Generated pages come from the code, in its environment; the site is built in its own. Warnings are errors.
docs: setup $(DOCS)/installed
	$(BIN)/python scripts/write_reference.py build/reference
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	! grep --recursive --include='*.html' --extended-regexp '<(script|link|img)[^>]* (src|href)="?https?:' build/site
	@echo "The documentation is build/site/index.html: open it in a browser."
