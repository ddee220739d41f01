# The front door: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
BUILD ?= build
PREFIX ?= /usr/local
TEXT ?=
PRESET ?=
PYTHON_FOLDERS := bench experiments plotting python scripts tests
FUZZ_SECONDS ?= 30
SOAK_SECONDS ?= 3600
FUZZ_TARGETS ?=
STEPS ?=
OUT ?=
JOBS := $(shell nproc 2>/dev/null || echo 2)
export TARN_PYTHON

.PHONY: help setup build test counts-update demo demo-names demo-listops paper paper-quick runtime wheel test-runtime test-arm test-sanitizers wasm wasm-test soak fuzz bench bench-peers cuda-test cuda-sanitize cuda-bench docs install clean format

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo "Variables: TEXT=book.txt PRESET=gdn STEPS=800 OUT=models/book (demo), TARN_PYTHON=/path/to/python,"
	@echo "  DESTDIR= PREFIX=$(PREFIX) (install)"

setup: ## Install missing system packages, make .venv (skips what is there)
	@scripts/setup.sh

build: setup ## Build everything into build/
	@scripts/build.sh $(BUILD) release

# Threads of torch that wait are put to sleep. Spinning, they would take the cores
# from the work they wait for wherever other work runs, such as the other test.
test: export OMP_WAIT_POLICY = PASSIVE
# Memory that is freed stays with the process: tests make and drop large tensors all
# the time, and the kernel would clear the same pages for each of them.
test: export MALLOC_TRIM_THRESHOLD_ = 1000000000
test: export MALLOC_MMAP_THRESHOLD_ = 33554432
test: build ## Build and run every test, C++ and Python
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

counts-update: build ## Store this build's instruction counts as the baselines
	@python3 -B tests/counts/kernel_counts.py update $(BUILD)/count_kernels

demo: setup ## Train on real text, then generate (TEXT=, PRESET=, STEPS=, OUT=)
	@scripts/build.sh $(BUILD) release tarn tarn-train
	@TEXT='$(TEXT)' PRESET='$(PRESET)' STEPS='$(STEPS)' OUT='$(OUT)' BUILD='$(BUILD)' scripts/demo.sh

demo-names: setup ## Names to pronunciation: softmax and linear (STEPS=, OUT=, NAMES=)
	@scripts/build.sh $(BUILD) release tarn tarn-train
	@STEPS='$(STEPS)' OUT='$(OUT)' BUILD='$(BUILD)' NAMES='$(NAMES)' scripts/demo_names.sh

demo-listops: setup ## ListOps up to 200 tokens: softmax and linear (STEPS=, OUT=)
	@scripts/build.sh $(BUILD) release tarn tarn-train
	@STEPS='$(STEPS)' OUT='$(OUT)' BUILD='$(BUILD)' scripts/demo_listops.sh

paper: build ## The paper's experiments, then docs/paper (OUT=models/paper/cpu, ARGS=)
	@$(BUILD)/tarn experiment all $(if $(OUT),--out '$(OUT)') $(ARGS); code=$$?; \
	  if [ $$code = 0 ] || [ $$code = 3 ]; then \
	    $(BUILD)/tarn experiment report $(if $(OUT),--out '$(OUT)') || code=$$?; fi; exit $$code

paper-quick: build ## The same at smoke size, into the build directory
	@$(BUILD)/tarn experiment all --size quick --force --out $(BUILD)/paper-quick $(ARGS)
	@$(BUILD)/tarn experiment report --out $(BUILD)/paper-quick --to $(BUILD)/paper-quick/report

runtime: ## build/tarn alone, for this machine's CPU: no torch, no Python
	@scripts/setup.sh --lean
	@scripts/build.sh $(BUILD) native tarn

test-runtime: ## The part without torch for every SIMD target, with its tests
	@scripts/setup.sh --lean
	@scripts/build.sh build-runtime runtime
	@ctest --test-dir build-runtime --output-on-failure -j $(JOBS)

wheel: setup ## Both Python wheels into dist/: runtime alone, and for the installed torch
	@python=$${TARN_PYTHON:-.venv/bin/python}; \
	  CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $$python -B scripts/build_wheels.py $(BUILD) dist

test-arm: ## Cross-compile for 64-bit Arm, kernel tests under qemu-user
	@scripts/setup.sh --lean --arm
	@scripts/build.sh build-arm arm
	@ctest --test-dir build-arm --output-on-failure -j $(JOBS)

wasm: ## The runtime as WebAssembly and the playground, into build-wasm
	@scripts/build_wasm.sh tarn_runtime_js playground

wasm-test: wasm ## Its tests under node; against build/tarn where that is built
	@scripts/build_wasm.sh wasm_tests
	@ctest --test-dir build-wasm --output-on-failure -j $(JOBS)
	@if [ -x $(BUILD)/tarn ] && [ -x .venv/bin/python ]; then \
	  TARN_PROGRAM=$(BUILD)/tarn .venv/bin/python -B -m pytest -q -rs -p no:cacheprovider tests/wasm; \
	else echo "wasm-test: no $(BUILD)/tarn to compare with: make build"; fi

test-sanitizers: ## The lean half under ASan and UBSan, then under TSan
	@scripts/setup.sh --lean
	@for preset in asan tsan; do \
	  scripts/build.sh build-$$preset $$preset && \
	  ctest --test-dir build-$$preset --output-on-failure -j $(JOBS) || exit 1; done

soak: build ## The server under random sessions and crashes (SOAK_SECONDS=3600, OUT= for results)
	@TARN_PROGRAM=$(BUILD)/tarn $${TARN_PYTHON:-.venv/bin/python} -B tests/soak/soak.py \
	  --seconds $(SOAK_SECONDS) $(if $(OUT),--out '$(OUT)')

fuzz: ## Each fuzz target for FUZZ_SECONDS=30, with clang (FUZZ_TARGETS=, tests/fuzz)
	@scripts/setup.sh --lean --fuzz
	@scripts/build.sh build-fuzz fuzz fuzz_targets
	@python3 -B tests/fuzz/run.py build-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

bench: build ## Every kernel and operator against the machine's limits
	@TARN_BUILD=$(BUILD) $${TARN_PYTHON:-.venv/bin/python} bench/run.py --kernels

bench-peers: build ## All goals against other implementations (their set-up: 15 minutes, once)
	@scripts/bench_setup.sh
	@TARN_BUILD=$(BUILD) .venv-peers/bin/python bench/run.py --all

cuda-test: ## Build the operators with their CUDA kernels, test them on the device (ARGS= of pytest)
	@scripts/cuda_check.sh test $(ARGS)

cuda-sanitize: ## Some of these tests under compute-sanitizer (ARGS= of pytest)
	@scripts/cuda_check.sh sanitize $(ARGS)

cuda-bench: ## The CUDA kernels against the device's limits and others (ARGS= of bench/cuda.py)
	@scripts/cuda_check.sh bench $(ARGS)

docs: ## The documents as a site, into build/docs (opens from disk, needs no network)
	@scripts/setup.sh --docs
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -B -m mkdocs build --site-dir $(BUILD)/docs

install: build ## Install programs, library, headers (DESTDIR, PREFIX)
	@cmake --install $(BUILD) --prefix $(PREFIX)

format: ## clang-format and ruff over the tree
	@scripts/setup.sh
	@python=$${TARN_PYTHON:-.venv/bin/python}; \
	  git ls-files '*.h' '*.cc' '*.c' '*.hpp' '*.cu' '*.cuh' | \
	    xargs "$$(dirname "$$python")/clang-format" -i && \
	  $$python -m ruff format --quiet $(PYTHON_FOLDERS) && \
	  $$python -m ruff check --quiet $(PYTHON_FOLDERS)

clean: ## Remove build trees (keeps .venv and models)
	@rm -rf build build-debug build-runtime build-asan build-tsan build-fuzz build-arm build-wasm build-wheel build-wheel-runtime dist
