# `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
APP := $(VENV)/.app
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: all demo test lint format reproduce docs clean

all: $(STAMP)

# All that the demo needs. Modules are compiled when they are imported: most of them never are.
$(APP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --editable '.[app]'
	touch $@

# Last an encoder of texts with its weights: where it cannot be built, a few tests are skipped.
$(STAMP): $(APP)
	$(PIP) --editable '.[app,dev,docs]'
	-$(PIP) --editable '.[text]'
	touch $@

demo: $(APP)
	$(BIN)/mnemosphere demo

# Modules are compiled once, not in each of the many processes that the tests start.
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile \
		--no-loadscope-reorder -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduce: $(STAMP)
	$(BIN)/python -m research reproduce all --quick

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
