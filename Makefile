# `make help` lists the targets. Every target sets up what it needs: Debian packages, .venv/, build/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
JOBS ?= $(shell nproc)
venv := .venv
bin := $(venv)/bin
peer := .cache/peer
peer8 := .cache/peer-8
build := build

# The name of a stamp contains the checksum of its package list: only a changed list is installed again.
sum = $(firstword $(shell cksum < $(1)))
venv_stamp := $(venv)/.ready-$(call sum,packaging/python-requirements.txt)-$(call sum,packaging/compile_imports.py)
peer_stamp := $(peer)/.ready-$(call sum,packaging/peer-requirements.txt)
peer8_stamp := $(peer8)/.ready-$(call sum,packaging/peer8-requirements.txt)

# UNITY=ON: a new build/ compiles each room (folder) as one file. OFF, for daily work: each file for itself.
UNITY ?= OFF
export UNITY

# FUZZ_SECONDS: time for all fuzz targets in total. FUZZ: the targets to run; empty: all.
FUZZ_SECONDS ?= 3600
FUZZ ?=

# What `make tidy` checks. TIDY: a regular expression, the paths. TIDY_SINCE: only rooms with a file that changed since this
# revision, or in the last 24 hours of history (TIDY_SINCE=day). TIDY_SECONDS: no room is begun after this time. Empty: no limit.
TIDY ?=
TIDY_SINCE ?=
TIDY_SECONDS ?=

# What `make sanitize` tests. SANITIZE: rooms, which are folders of tests/. SANITIZE_SINCE: those whose sources changed since this
# revision, or in the last 24 hours of history (SANITIZE_SINCE=day). Both empty: all.
SANITIZE ?=
SANITIZE_SINCE ?=

# An environment with the libraries of tests/real/programs/. REAL: arguments for pytest, for example REAL="-k llama".
real := .cache/real
real_stamp := $(real)/.ready-$(call sum,tests/real/requirements.txt)-$(call sum,tests/real/timm.txt)
REAL ?=

# An environment with Debian's PyTorch, the oldest supported version, and our wheel.
old := .cache/torch-1.13
OLD_PYTHON ?= /usr/bin/python3

# An environment with the newest PyTorch of PyPI that works here, and our wheel. LATEST: arguments for pytest.
latest := .cache/torch-latest
LATEST ?=

# An environment with MindSpore and the NumPy that it is built for.
mindspore := .cache/mindspore
mindspore_stamp := $(mindspore)/.ready-$(call sum,tests/mindspore/requirements.txt)
MINDSPORE ?=
peer_mindspore := .cache/peer-mindspore
peer_mindspore_stamp := $(peer_mindspore)/.ready-$(call sum,packaging/peer-mindspore-requirements.txt)
BENCH ?=

# Arguments for bench/reports/run.py.
REPORTS ?=

.PHONY: help setup browser build test test-all test-real test-torch-1.13 test-torch-latest test-mindspore setup-mindspore sanitize fuzz wheel demo demo-mindspore bench bench-peer bench-mindspore diagnosis reports lint setup-tidy tidy format clean

help: ## show this list
	@grep -E '^[a-z0-9.-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 17

setup: $(venv_stamp) ## install Debian packages and .venv/
	@packaging/install-debian.sh

$(venv_stamp): packaging/python-requirements.txt packaging/compile_imports.py
	@packaging/install-debian.sh
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "error: python3 is %d.%d, expected 3.10 or newer; type: make PYTHON=/path/to/python3 ..." % v[:2])'
	@echo "== Python packages into $(venv)/ (PyTorch is large; once)"
	@test -x $(bin)/python || $(PYTHON) -m venv $(venv)
	@$(bin)/python -m pip install --no-cache-dir --no-compile --quiet --disable-pip-version-check -r $<
	@$(bin)/python packaging/compile_imports.py
	@rm -f $(venv)/.ready-*
	@touch $@

build: setup ## compile the program, the extension and the tests: build/ and .venv/bin/msprobe
	@tools/build.sh $(build) $(venv) $(JOBS)

test: build ## run C++ and Python tests; the last line counts both
	@$(bin)/python tests/run.py --build $(build)

test-all: build ## the same, and the long campaigns
	@$(bin)/python tests/run.py --build $(build) --campaigns

test-real: build $(real_stamp) ## programs of transformers, lightning, timm, ...: repeated runs, planted bugs (half an hour)
	@tools/test_torch.sh $(PYTHON) $(real) $(build) $(venv) tests/real/trials.py tests/python/test_callbacks.py $(REAL)

$(real_stamp): tests/real/requirements.txt tests/real/timm.txt
	@echo "== libraries of real programs into $(real)/"
	@mkdir -p $(dir $(real))
	@test -x $(real)/bin/python || $(PYTHON) -m venv $(real)
	@$(real)/bin/python -m pip install --no-cache-dir --no-compile --quiet --disable-pip-version-check -r $<
	@rm -rf $(real)/timm $(real)/.ready-*
	@$(real)/bin/python -m pip install --no-cache-dir --no-compile --quiet --disable-pip-version-check --no-deps --target $(real)/timm -r tests/real/timm.txt
	@$(real)/bin/python packaging/compile_imports.py
	@touch $@

test-torch-1.13: build ## the Python tests that apply under Debian's PyTorch 1.13.1
	@packaging/install-debian.sh packaging/debian-torch.txt
	@tools/test_torch.sh $(OLD_PYTHON) $(old) $(build) $(venv)

# PyPI's wheels bring the libraries of CUDA: 6 GB on the disk. No GPU is needed.
test-torch-latest: build ## the Python tests under the newest PyTorch of PyPI that works here (3 GB to download)
	@mkdir -p $(dir $(latest))
	@test -x $(latest)/bin/python || $(PYTHON) -m venv $(latest)
	@$(latest)/bin/python packaging/install_latest_torch.py $$($(bin)/python -c 'import torch; print(torch.__version__.split("+")[0])')
	@grep -E '^(numpy|scikit-learn|matplotlib)==' packaging/python-requirements.txt > $(latest)/libraries.txt
	@$(latest)/bin/python -m pip install --no-cache-dir --no-compile --quiet --disable-pip-version-check -r $(latest)/libraries.txt
	@$(latest)/bin/python packaging/compile_imports.py
	@tools/test_torch.sh $(PYTHON) $(latest) $(build) $(venv) $(LATEST)

# MINDSPORE: arguments for pytest, for example MINDSPORE="-k names"; MINDSPORE=--campaigns: also the long campaigns.
test-mindspore: build $(mindspore_stamp) ## the tests of msprobe.mindspore (MindSpore is large; installed once)
	@FRAMEWORK=mindspore tools/test_torch.sh $(PYTHON) $(mindspore) $(build) $(venv) $(MINDSPORE)

# Fails where there is no MindSpore for this machine and Python, or no network.
setup-mindspore: $(mindspore_stamp) ## install MindSpore into .cache/mindspore/

$(mindspore_stamp): tests/mindspore/requirements.txt
	@echo "== MindSpore into $(mindspore)/ (large; once)"
	@mkdir -p $(dir $(mindspore))
	@test -x $(mindspore)/bin/python || $(PYTHON) -m venv $(mindspore)
	@$(mindspore)/bin/python packaging/install_mindspore.py $<
	@$(mindspore)/bin/python packaging/compile_imports.py
	@rm -f $(mindspore)/.ready-*
	@touch $@

# Builds in build-asan/ and build-tsan/, and runs all C++ tests in both; in build-asan/ also the fuzz targets on their seeds.
sanitize: setup ## run C++ tests with sanitizers; SANITIZE="compare dump" or SANITIZE_SINCE=HEAD~1 select rooms
	@rooms="$(SANITIZE)"; if [ -n "$(SANITIZE_SINCE)" ]; then \
	  rooms=$$($(bin)/python tools/changed_files.py --rooms '$(SANITIZE_SINCE)'); \
	  [ -n "$$rooms" ] || { echo "no room with C++ tests has changed since $(SANITIZE_SINCE)"; exit 0; }; fi; \
	  tools/sanitize.sh $(bin)/python $(JOBS) $$rooms

fuzz: setup ## give hostile files to all readers; FUZZ_SECONDS=3600 in total, FUZZ="pt dump" selects targets
	@packaging/install-debian.sh packaging/debian-fuzz.txt
	@test -f build-fuzz/build.ninja || CC=clang-14 CXX=clang++-14 cmake -S . -B build-fuzz -G Ninja -DMSPROBE_FUZZ=ON -DMSPROBE_PCH=OFF \
	  -DMSPROBE_SANITIZE=address,undefined,fuzzer-no-link > /dev/null
	@ninja -C build-fuzz -j $(JOBS)
	@$(bin)/python fuzz/run.py --build build-fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

wheel: setup ## write wheels to dist/: for any Linux with this glibc or newer, without compiler and Debian packages
	@tools/wheel.sh $(bin)/python dist

demo: setup ## plant a fault in one operation, find it again
	@UNITY=ON tools/build.sh $(build) $(venv) $(JOBS) msprobe_cli _engine
	@examples/demo/demo.sh $(bin)

demo-mindspore: build $(mindspore_stamp) ## the same across frameworks: PyTorch, and MindSpore with a fault
	@SCRIPT=/dev/null FRAMEWORK=mindspore tools/test_torch.sh $(PYTHON) $(mindspore) $(build) $(venv) > /dev/null
	@examples/demo/demo_mindspore.sh $(bin) $(mindspore)/bin

bench: build ## measure every speed that we claim, beside memcpy
	@cmake -DMSPROBE_BENCH=ON $(build) > /dev/null && ninja -C $(build) -j $(JOBS)
	@$(bin)/python bench/run.py --build $(build)

bench-peer: build $(peer_stamp) $(peer8_stamp) ## the same beside the older tool (in its own .cache/peer/ and .cache/peer-8/)
	@cmake -DMSPROBE_BENCH=ON $(build) > /dev/null && ninja -C $(build) -j $(JOBS)
	@$(bin)/python bench/run.py --build $(build) --peer $(peer)/bin/python --peer8 $(peer8)/bin/python

diagnosis: build ## count which planted faults compare names, and which harmless changes it blames: docs/explain/diagnosis.md
	@$(bin)/python bench/diagnosis/run.py --docs docs/explain/diagnosis.md $(if $(wildcard $(peer)/bin/python),--peer $(peer)/bin/python)

reports: build ## bugs of public reports as small programs: which are named, and which sentences are false; REPORTS="--only gan --keep DIR"
	@$(bin)/python bench/reports/run.py $(REPORTS)

bench-mindspore: build $(mindspore_stamp) $(peer_mindspore_stamp) ## what recording adds to a MindSpore step; BENCH="--only idle" selects
	@SCRIPT=bench/mindspore/run.py FRAMEWORK=mindspore tools/test_torch.sh $(PYTHON) $(mindspore) $(build) $(venv) \
	  --peer $(peer_mindspore)/bin/python $(BENCH)

$(peer_stamp): packaging/peer-requirements.txt
$(peer8_stamp): packaging/peer8-requirements.txt
$(peer_mindspore_stamp): packaging/peer-mindspore-requirements.txt packaging/install_mindspore.py
$(peer_mindspore_stamp): install = packaging/install_mindspore.py $<
$(peer_stamp) $(peer8_stamp): install = -m pip install --no-cache-dir --no-compile --quiet --disable-pip-version-check -r $<
$(peer_stamp) $(peer8_stamp) $(peer_mindspore_stamp):
	@echo "== the older tool into $(@D)/"
	@mkdir -p $(dir $(@D))
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(install)
	@rm -f $(@D)/.ready-*
	@touch $@

lint: setup ## check formatting, ruff, shell syntax, file sizes; changes nothing
	@$(bin)/python tools/lint.py

browser: setup ## install Chromium, Firefox, Playwright, tsc and oxlint: tests and lint of the page (compare --html) use them
	@packaging/install-debian.sh packaging/debian-browser.txt
	@$(bin)/python -m pip install --no-cache-dir --no-compile --quiet --disable-pip-version-check -r packaging/browser-requirements.txt

# Fails where clang-tidy cannot be installed.
setup-tidy: setup ## install clang-tidy
	@packaging/install-debian.sh packaging/debian-tidy.txt
	@command -v clang-tidy-14 > /dev/null || { echo "error: clang-tidy-14 is not installed" >&2; exit 1; }

# TIDY=engine/formats: files whose path begins so. TIDY_SINCE=main: what a branch changed. Compiles nothing.
tidy: setup-tidy ## run clang-tidy on the C++ sources (.clang-tidy); TIDY=engine/formats, TIDY_SINCE=HEAD~1 select rooms
	@$(bin)/python tools/tidy.py --jobs $(JOBS) --since '$(TIDY_SINCE)' --seconds '$(TIDY_SECONDS)' '$(TIDY)'

format: setup ## format the C++ and Python sources
	@$(bin)/python tools/lint.py --fix

clean: ## remove build folders and demo_output/ (not .venv/)
	rm -rf $(build) build-asan build-tsan build-fuzz build-tidy build-wheel demo_output
