# Two commands do everything on a fresh machine: `make run` and `make test`.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: run test lint types unit test-slow bench picture gallery clean help

run: $(STAMP)  ## design a spring, a thousand times at once, and save the run
	$(BIN)/galapax solve examples/spring.py --runs 1000 --generations 500 --out runs/spring --force

test: lint types unit  ## lint, types and tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(STAMP)  ## convergence over many seeds and the quality of the random numbers
	$(BIN)/python -m pytest -m slow

bench: $(STAMP)  ## galapax beside other libraries, those that are installed
	$(BIN)/python benchmarks/peers.py

picture: $(STAMP)  ## draw the picture of the README again
	$(BIN)/python docs/picture.py

gallery: $(STAMP)  ## draw the pictures of docs/gallery.md again
	$(BIN)/python docs/gallery.py

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'
