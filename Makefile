PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
FLOWER := .venv-flower
NVFLARE := .venv-nvflare
DOCS := .venv-docs
WHEEL := build/wheel
# One thread per process: parallelism comes from processes, and results do not depend on the core count.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all test-flower test-nvflare test-wheel check mutants fmt bench docs

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
	$(BIN)/pytest -n 2 --dist worksteal

test-all: setup
	$(BIN)/pytest -n 2 --dist worksteal -m ''

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

# What users do with a wheel, in a clean environment: install it, look at the help, run a short experiment, read the report.
test-wheel:
	rm -rf $(WHEEL) build/lib
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/pip wheel --quiet --no-deps --wheel-dir $(WHEEL) .
	$(WHEEL)/venv/bin/python scripts/check_wheel.py $(WHEEL)/*.whl
	$(WHEEL)/venv/bin/pip install --quiet --constraint constraints.txt torch
	$(WHEEL)/venv/bin/pip install --quiet --constraint constraints.txt $(WHEEL)/*.whl
	cd $(WHEEL) && venv/bin/snowball --help > help.txt
	cd $(WHEEL) && venv/bin/snowball run demo --set rounds=2 --set cohort=10 --set data.clients=20 --out run --track csv
	cd $(WHEEL) && venv/bin/snowball report run --html report.html

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Small changes of the core files, one at a time: their tests must catch nine in ten.
mutants: setup
	$(BIN)/python scripts/mutants.py

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/snowball bench elections --json > benchmarks/results/bench-elections.json
	$(BIN)/snowball bench guard --json > benchmarks/results/bench-guard.json
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
