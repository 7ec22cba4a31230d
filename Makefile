# Every target sets itself up: it needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Some hosts offer one core, some many; two workers keep the compiler of XLA busy on a small machine.
WORKERS ?= 2

.PHONY: demo test test-slow bench lint clean

demo: $(VENV)/.installed
	$(BIN)/scasml solve hjb --dim 100 --rtol 1e-3

test: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest -q -n $(WORKERS)

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n $(WORKERS) -m slow

bench: $(VENV)/.installed-dev
	$(BIN)/scasml bench

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mdformat --check README.md CHANGELOG.md docs
	$(BIN)/pyright

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "scasml needs Python >= 3.11, found " + sys.version.split()[0] + ": run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[cli]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@ $(VENV)/.installed
