PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
FLOWER := .venv-flower
NVFLARE := .venv-nvflare
DOCS := .venv-docs
WHEEL := build/wheel
SUPPLY := .venv-supply
# One thread per process: parallelism comes from processes, and results do not depend on the core count.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all test-faults test-flower test-nvflare shipped test-wheel hashes sbom scan check mutants fmt
.PHONY: bench docs

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

# Everything that tries to break the package: faults, kills, full disks, a soak, fuzzers, hostile rounds.
test-faults: setup
	$(BIN)/pytest -n 2 -m '' tests/faults tests/fuzz tests/sim/test_faults.py tests/sim/engines/test_engines.py \
		tests/e2e/test_run_stopped.py tests/sweeps/test_sweep_local.py tests/test_hostile_rounds.py

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

# What users get, and nothing else: hashes for all packages but torch, whose build depends on the machine.
shipped:
	rm -rf $(WHEEL) build/lib
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/pip install --quiet --require-hashes --requirement requirements-hashed.txt
	$(WHEEL)/venv/bin/pip install --quiet --constraint constraints.txt torch
	$(WHEEL)/venv/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(WHEEL) .
	$(WHEEL)/venv/bin/python scripts/check_wheel.py $(WHEEL)/*.whl
	$(WHEEL)/venv/bin/pip install --quiet --no-deps $(WHEEL)/*.whl
	$(WHEEL)/venv/bin/pip check
	$(WHEEL)/venv/bin/pip uninstall --quiet --yes pip

# What users do with a wheel: look at the help, run a short experiment, read the report.
test-wheel: shipped
	cd $(WHEEL) && venv/bin/snowball --help > help.txt
	cd $(WHEEL) && venv/bin/snowball run demo --set rounds=2 --set cohort=10 --set data.clients=20 --out run --track csv
	cd $(WHEEL) && venv/bin/snowball report run --html report.html

$(SUPPLY)/installed: constraints-supply.txt
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/pip install --quiet --no-deps --requirement constraints-supply.txt
	touch $@

hashes: $(SUPPLY)/installed
	$(SUPPLY)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-build --emit-build-options \
		--constraint constraints.txt --no-emit-package torch --excludes scripts/torch-gpu-packages.txt \
		--custom-compile-command 'make hashes' --output-file requirements-hashed.txt pyproject.toml

sbom: shipped $(SUPPLY)/installed
	$(SUPPLY)/bin/cyclonedx-py environment --validate --output-reproducible --mc-type library --pyproject pyproject.toml \
		--output-file build/sbom.json $(WHEEL)/venv/bin/python

scan: sbom
	$(SUPPLY)/bin/python scripts/scan.py build/sbom.json

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
	$(BIN)/python -m benchmarks.speed.start > benchmarks/results/bench-start.json

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
