# Two commands do all the set-up: `make demo` and `make test`.
# Another torch build: make install TORCH_INDEX=https://download.pytorch.org/whl/cu128 TORCH=torch
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch
TORCH_INDEX ?=
CONSTRAINTS ?= constraints.txt
LIMITS = $(if $(TORCH_INDEX),,-c $(CONSTRAINTS))
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Where it is set, every process would compile every module it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-core test-slow fuzz golden mutants lint reference docs run-docs bench bench-smoke resolve wheel clean

# The demo needs half of what tests and documentation do; where these are there, nothing is added.
$(VENV)/.demo: EXTRAS := train,verify
$(VENV)/.installed: EXTRAS := train,verify,dev,docs
install: $(VENV)/.installed

# Modules are not compiled ahead: 14,000 files take a minute, and Python compiles the few that are
# imported. Kernels are, while the large packages of the extras come, which a rehearsal does without:
# the first run is a warm one. Of mutmut only its list of slips is used, which needs libcst alone.
$(VENV)/.demo $(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP) install -q --no-compile --index-url $(TORCH_INDEX) "$(TORCH)")
	$(PIP) install -q --no-compile $(LIMITS) -e .
	$(BIN)/llmcurate warmup & warmup=$$!; \
	  $(PIP) install -q --no-compile $(LIMITS) $(if $(TORCH_INDEX),,"$(TORCH)") "llmcurate[$(EXTRAS)]" && wait $$warmup
	$(if $(findstring dev,$(EXTRAS)),$(PIP) install -q --no-compile --no-deps -c $(CONSTRAINTS) mutmut libcst)
	@touch $@

demo: $(if $(wildcard $(VENV)/.installed),install,$(VENV)/.demo)
	$(BIN)/llmcurate demo --out demo
	$(BIN)/llmcurate verify "$$(ls -d demo/runs/*-demo | tail -n 1)"
	@echo; echo "report: $$(ls -d demo/runs/*-demo | tail -n 1)/report.html"

# Files side by side, one more than cores; those of one file one after the other. In their order: by number of
# tests, the one that takes longest would begin last.
test: install
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow"

# Core's tests in a copy without the lab. make test-core SLICE=N runs one of twenty parts.
test-core: install
	$(BIN)/python scripts/core_tests.py $(if $(SLICE),--slice $(SLICE))

# The longest ones, which the others stand for in small, and all examples of property tests: minutes more.
test-slow: install
	LLMCURATE_EXAMPLES=all $(BIN)/python -m pytest -n auto --dist loadfile -m "slow or hypothesis"

# Damaged files of every kind, with kernels that check each access to an array, which are compiled and
# kept apart from the others; a test of them draws so many examples: make fuzz SEED=7 EXAMPLES=2000
SEED ?= 0
EXAMPLES ?= 300
fuzz: install
	RUST_BACKTRACE=0 NUMBA_BOUNDSCHECK=1 LLMCURATE_EXPLORE=1 LLMCURATE_EXAMPLES=$(EXAMPLES) \
	  $(BIN)/python -m pytest -n auto --timeout 3600 --hypothesis-seed=$(SEED) tests/fuzz

# The bytes of runs and trainings, compared with those on record: before and after a redesign.
golden: install
	$(BIN)/python scripts/golden.py

# What the tests do not watch: lines of a folder are drawn, a slip is put into each, one at a time and
# in a copy; those that no test notices are listed. make mutants FOLDER=curate/filters SEED=1
MUTANTS ?= 200
SECONDS ?= 3600
mutants: install
	@test -n "$(FOLDER)" || { echo "name what to draw from: make mutants FOLDER=curate/filters"; exit 2; }
	$(BIN)/python scripts/mutants.py $(FOLDER) --seed $(SEED) --mutants $(MUTANTS) --seconds $(SECONDS)

lint: install
	$(BIN)/ruff check llmcurate curate tokenize_kit train tests benchmarks scripts examples
	$(BIN)/mypy -n 2
	$(BIN)/lint-imports
	$(BIN)/python scripts/plain_english.py

# The schema of recipes and docs/reference, from the fields of settings.
reference: install
	$(BIN)/python -m curate.cli.reference

# The documentation as a site: build/docs/index.html.
docs: install
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs

# The outputs in the tutorial and the notebooks, written anew from what they print.
run-docs: install
	$(BIN)/python scripts/run_docs.py

bench: install
	@missed=; for script in benchmarks/bench_*.py; do echo "== $$script"; \
	  $(BIN)/python $$script || missed="$$missed $$script"; done; \
	  if [ -n "$$missed" ]; then echo "below target or failed:$$missed"; exit 1; fi

# Every benchmark on its smallest input, a line each: ten minutes on two cores. make bench-smoke SLICE=N
# runs one of the ten parts. Peers that are not installed are skipped; benchmarks/peer_env.sh installs them.
bench-smoke: install
	$(BIN)/python benchmarks/smoke.py $(if $(SLICE),--slice $(SLICE))

# What pip resolves for each supported Python, from wheels alone.
resolve:
	@sh scripts/resolve.sh

# A wheel for this Python with the kernels' machine code, for processors of x86-64-v3: where it is
# installed, the first run compiles nothing that the demo or a rehearsal of the shipped recipes needs.
CODE := build/machine_code
wheel: export NUMBA_CPU_NAME = x86-64-v3
wheel: export NUMBA_CPU_FEATURES =
wheel: export NUMBA_CACHE_DIR = $(CURDIR)/$(CODE)
wheel: install
	rm -rf $(CODE) $(CODE)_demo
	$(BIN)/llmcurate warmup
	$(BIN)/llmcurate demo --out $(CODE)_demo --set pretrain.steps=8
	MACHINE_CODE=$(CODE) $(BIN)/python -m hatchling build -t wheel -d dist

clean:
	rm -rf demo runs dist build .pytest_cache .mypy_cache .ruff_cache
