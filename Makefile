# Everything a developer or a CI runner calls. Needs Python 3.11 or later with pip and venv, and make.

PYTHON ?= python3
# A release of torch other than the pinned one, as in `make test TORCH=2.15.0`; it has an environment of its own.
TORCH ?=
VENV ?= .venv$(if $(TORCH),-torch-$(TORCH))
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

# One torch thread for each process: small models gain nothing from more, and on shared cores they lose much.
demo test test-all test-device test-postgresql test-slurm examples docs bench fuzz faults: export OMP_NUM_THREADS := 1

.PHONY: setup demo test test-all test-device test-postgresql test-slurm check lint types layers examples docs images bench fuzz faults clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed '$(if $(TORCH),s/^torch==.*/torch==$(TORCH)/)' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/python -m pip install -c $(VENV)/constraints.txt -e '.[dev]'
	# The oracle of the scaling rules in the tests; it asks for far more than it needs.
	$(BIN)/python -m pip install --no-deps mup==1.0.0
	touch $@

demo: $(STAMP)
	$(BIN)/headwater run examples/digits.py --trials 64

check: lint types layers test

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

# Needs no server, and ends within ten minutes on two cores. The examples have a target of their own below.
test: $(STAMP)
	$(BIN)/pytest -n 2 -m 'not slow' --ignore=tests/examples

# All tests, also those of clusters, services and pages; .ci/run brings the servers.
test-all: $(STAMP)
	.ci/test_twice $(BIN)/pytest -n 2 --durations=25 --ignore=tests/examples

# Whatever trains, on a simulated accelerator with two devices, which is compiled first; needs a C++ compiler and ninja.
test-device: $(STAMP)
	HEADWATER_TEST_DEVICE=sim $(BIN)/pytest -n 2 --durations=10 tests/accelerator tests/test_devices.py tests/parity \
		tests/examples/test_loops.py tests/examples/test_docs.py tests/examples/test_packs.py tests/examples/test_surrogate.py

# The record's tests on a PostgreSQL server too, which is installed if need be and runs for as long as they do.
test-postgresql: $(STAMP)
	CI=true .ci/with_postgresql $(BIN)/pytest tests/store

# Studies on a Slurm cluster of two nodes, which is installed if need be and runs for as long as they do.
test-slurm: $(STAMP)
	CI=true .ci/with_slurm $(BIN)/pytest tests/execute/test_slurm_executor.py

examples: $(STAMP)
	$(BIN)/pytest tests/examples

# The site, at build/docs/index.html. Spelling, links and every warning count.
docs: $(STAMP)
	$(BIN)/codespell
	$(BIN)/sphinx-build -W --keep-going -q -c docs -d build/doctrees . build/docs
	$(BIN)/python docs/check_site.py build/docs

# The pictures of the dashboard in the docs, of studies that run now; needs Chromium.
images: $(STAMP)
	$(BIN)/python docs/take_images.py

bench: $(STAMP)
	$(BIN)/python benchmarks/lanes.py
	$(BIN)/python benchmarks/overhead.py

# Generated programs in plain PyTorch, one by one, in lanes and with pauses. `make fuzz NUM=500 SEED=7` for others.
NUM ?= 5000
SEED ?= 0
JOBS ?= 2
fuzz: $(STAMP)
	PYTHONPATH=src $(BIN)/python -m tests.fuzz --num $(NUM) --seed $(SEED) --jobs $(JOBS)

# Kills, full disks, locks, lost databases, damaged states, races: each study ends as one left alone.
faults: $(STAMP)
	PYTHONPATH=src $(BIN)/python -m tests.faults

clean:
	rm -rf build dist docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
