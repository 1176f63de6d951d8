# One target per task; each works from a clean clone with Python >= 3.10 and make, and installs what it
# needs into .venv the first time. `make` alone lists them.
#
# PYTHON=python3.12 make test    builds .venv with another Python (after make clean)
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test
#                                on Linux without a GPU: a torch of 200 MB and not of several GB

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
# Installed without torch, to try the wheel as a reader of traces gets it.
READER = build/reader

.DEFAULT_GOAL := help
.PHONY: help demo test test-vllm test-engines check fmt lint types contracts faults fuzz bench samples wheel clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name words; do printf 'make %-12s %s\n' "$$name" "$$words"; done

demo: $(VENV)/.engine  ## record a real run of the bundled tiny models and show it
	$(BIN)/spectrace demo

test: $(VENV)/.test  ## run every test
	$(BIN)/python -m pytest $(ARGS)

# Five minutes; the environment has 3.9 GB and is built once, with Python 3.11, in three.
test-vllm: build/engines/.ready  ## run a real vLLM, both runners, in one process each
	SPECTRACE_ENGINES=vllm build/engines/bin/python -m pytest $(patsubst %,tests/recorders/vllm/test_%.py,v1 v2 methods) $(ARGS)

# Half an hour on two cores, twice that on busy ones.
test-engines: build/engines/.suffix  ## run the tests that need real engines: vLLM, both runners, and SGLang
	SPECTRACE_ENGINES=vllm,sglang build/engines/bin/python -m pytest tests/recorders/vllm tests/recorders/sglang tests/recorders/test_serving_docs.py $(ARGS)

check: lint types contracts  ## every check that runs no test

fmt: $(VENV)/.static  ## format the code in place
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.static  ## format, lint, spelling, pyproject.toml
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/validate-pyproject pyproject.toml

types: $(VENV)/.static  ## mypy --strict
	$(BIN)/mypy

contracts: $(VENV)/.static  ## which room may import which (import-linter)
	$(BIN)/lint-imports

SECONDS_TO_FUZZ ?= 240

fuzz: $(VENV)/.test  ## feed mutated files to every door for SECONDS_TO_FUZZ (Linux, Python 3.11 to 3.13)
	$(PIP) install --quiet -c constraints.txt atheris
	$(BIN)/python tests/fuzz/run.py $(SECONDS_TO_FUZZ)

bench: $(VENV)/.test  ## measure reading, writing and the recorder's cost
	for script in benchmarks/bench_*.py; do $(BIN)/python "$$script" || exit 1; done

faults: $(VENV)/.engine  ## break real runs one by one and count what diagnose names (25 minutes)
	$(BIN)/python -m benchmarks.faults --write $(ARGS)

samples: $(VENV)/.engine  ## write sample_traces/ anew, with the same seed
	$(BIN)/python sample_traces/make_samples.py

wheel: $(VENV)/.wheel  ## build sdist and wheel, install the wheel without torch, try it
	rm -rf dist $(READER)
	$(BIN)/python -m build --no-isolation --outdir dist
	$(PYTHON) -m venv $(READER)
	$(READER)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(READER)/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	$(READER)/bin/python -I -c 'from importlib.util import find_spec; \
	    found = [name for name in ("torch", "transformers", "recorders") if find_spec(name)]; \
	    assert not found, f"the wheel brought {found}"'
	$(READER)/bin/spectrace --help
	for trace in sample_traces/*.spectrace; do \
	    $(READER)/bin/spectrace stats "$$trace" && \
	    $(READER)/bin/spectrace steps --limit 3 "$$trace" || exit 1; done

# Stamps: a second run installs nothing unless pyproject.toml or constraints.txt changed.
$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "spectrace needs Python >= 3.10; type: PYTHON=python3.12 make $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.engine: $(VENV)/.pip pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt torch
	$(PIP) install --quiet -c constraints.txt -e '.[report,transformers]'
	@touch $@

$(VENV)/.test: $(VENV)/.engine
	$(PIP) install --quiet -c constraints.txt --group test
	@touch $@

build/engines/.ready: tests/recorders/vllm/make_venv.sh tests/recorders/vllm/requirements.txt
	rm -rf build/engines
	tests/recorders/vllm/make_venv.sh build/engines
	@touch $@

# What vLLM decodes suffixes with names torch 2.7.0 for its build, and needs a compiler but no torch of that age.
build/engines/.suffix: build/engines/.ready
	build/engines/bin/python -m pip install --quiet cmake nanobind
	PATH="$(CURDIR)/build/engines/bin:$$PATH" build/engines/bin/python -m pip install --quiet --no-deps \
	    --no-build-isolation arctic-inference==0.1.1 && touch $@ || \
	    echo "arctic-inference was not built: tests of suffix decoding are left out" >&2

# mypy and import-linter read the packages that the code imports.
$(VENV)/.static: $(VENV)/.test
	$(PIP) install --quiet -c constraints.txt --group static
	@touch $@

$(VENV)/.wheel: $(VENV)/.pip pyproject.toml constraints.txt
	$(PIP) install --quiet -c constraints.txt --group wheel
	@touch $@

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
