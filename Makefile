# The front door. Targets that build run scripts/setup first, which does nothing where all is there.
#
# JOBS: compilers and tests at a time. EVERSTEP_CACHE: where downloads are kept.
# WERROR=ON: warnings are errors, as in CI (counts when a build folder is first configured).

JOBS ?= $(shell nproc)
WERROR ?= $(if $(CI),ON,OFF)
PROGRAMS := everstep everstep-operator everstep-supervisor everstep-worker
# What the cluster's tests run, beside the base and the pause image.
IMAGES := worker operator
CXX_FILES := git ls-files '*.h' '*.cc'

# Recipes share build folders, and ninja runs in parallel by itself.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup setup-tests build build-all test test-unit test-recovery test-asan test-tsan \
        cluster-tools images test-cluster manifests bench demo format clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what building needs: Debian packages, Rust, LibTorch, crates
	@scripts/setup

setup-tests:
	@scripts/setup --tests

build: setup build/build.ninja ## Build the programs into build/bin
	cmake --build build -j $(JOBS) --target $(PROGRAMS)

build-all: setup-tests build/build.ninja
	cmake --build build -j $(JOBS)

build/build.ninja:
	cmake --preset release -DEVERSTEP_WERROR=$(WERROR)

build-asan/build.ninja:
	cmake --preset asan -DEVERSTEP_WERROR=$(WERROR)

build-tsan/build.ninja:
	cmake --preset tsan -DEVERSTEP_WERROR=$(WERROR)

test: build-all build-tsan/build.ninja ## Build what is missing and run all that CI runs
	cmake --build build-tsan -j $(JOBS)
	@JOBS=$(JOBS) scripts/run-tests release:unit release:golden release:e2e tsan:unit

test-unit: build-all ## The unit tests alone
	@JOBS=$(JOBS) scripts/run-tests release:unit

test-recovery: build-all ## The sweep: many seeds of every kind of kill (long)
	@JOBS=1 scripts/run-tests release:recovery

test-asan: setup-tests build-asan/build.ninja ## The unit tests under ASan and UBSan
	cmake --build build-asan -j $(JOBS)
	@JOBS=$(JOBS) scripts/run-tests asan:unit

test-tsan: setup-tests build-tsan/build.ninja ## The unit tests of all that has threads under TSan
	cmake --build build-tsan -j $(JOBS)
	@JOBS=$(JOBS) scripts/run-tests tsan:unit

cluster-tools: ## Install the Kubernetes of the cluster tests (15 minutes at first)
	@tests/cluster/install

images: build ## Build the container images from build/bin, into build/images
	@tests/cluster/images base pause $(IMAGES)

test-cluster: build-all cluster-tools images ## The tests on a real Kubernetes (as root)
	@JOBS=1 scripts/run-tests release:cluster

manifests: setup build/build.ninja ## Write crds/, the chart's copy and dist/install.yaml
	cmake --build build -j $(JOBS) --target everstep-crd
	@scripts/make-manifests

bench: build-all ## Measure, beside LLaMA-Factory and Gloo, into build/bench (long; 6 GB at first)
	@scripts/bench

demo: build ## Fine-tune SmolLM2 on 4 ranks, kill one, compare with an undisturbed run
	@scripts/demo

format: ## Format the C++ files
	@$(CXX_FILES) | xargs clang-format -i

clean: ## Remove what was built (not the cache)
	rm -rf build build-asan build-tsan build-debug
