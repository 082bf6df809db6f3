# Two commands do everything on a fresh machine: `make run` and `make test`.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := $(VENV)/installed

.PHONY: run test lint types unit test-stack test-slow test-gpu bench confidence minima picture gallery docs site-version wheel clean help

run: $(STAMP)  ## design a spring, a thousand times at once, and save the run
	$(BIN)/galapax solve examples/spring.py --runs 1000 --generations 500 --out runs/spring --force

# together, as types take one core for half a minute when they are checked for the first time
test: $(STAMP)  ## lint, types and tests
	$(MAKE) --jobs=3 lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# a file is one worker's, whole, since its tests share compiled programs; PYTEST="--durations=20" says what took long
# the plug-ins' packages are there: their tests must not be skipped
unit: $(STAMP)
	GALAPAX_PLUG_IN_TESTS=required $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(PYTEST)

test-stack:  ## an installed wheel, nothing patched, with every supported Python on this machine; PYTHONS="..." names them
	$(PYTHON) tests_as_shipped/stack.py $(PYTEST)

test-slow: $(STAMP)  ## convergence over many seeds and the quality of the random numbers
	GALAPAX_TESTS_XLA=full $(BIN)/python -m pytest -m slow $(PYTEST)
	$(BIN)/python -m pytest tests_as_shipped -m slow $(PYTEST)

test-gpu: $(STAMP)  ## the tests on the accelerator that JAX finds, with that machine's programs
	GALAPAX_TESTS_XLA=full XLA_PYTHON_CLIENT_PREALLOCATE=false $(BIN)/python -m pytest -m "not slow" $(PYTEST)
	XLA_PYTHON_CLIENT_PREALLOCATE=false $(BIN)/python -m pytest tests_as_shipped -m "not slow" $(PYTEST)

bench: $(STAMP)  ## galapax beside other libraries, those that are installed
	$(BIN)/python benchmarks/peers.py

confidence: $(STAMP)  ## how often a success is right and a solved run says so, on BBOB
	$(BIN)/python benchmarks/confidence.py

minima: $(STAMP)  ## all global optima of the CEC 2013 niching suite, 50 runs each, as the suite counts them
	$(BIN)/python benchmarks/minima.py --runs 50

picture: $(STAMP)  ## draw the picture of the README again
	$(BIN)/python docs/picture.py

gallery: $(STAMP)  ## draw the pictures of docs/gallery.md again
	$(BIN)/python docs/gallery.py

docs: $(STAMP)  ## build the documentation site in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

site-version: $(STAMP)  ## add the site as VERSION, such as "0.1.0 latest" or dev, to the branch gh-pages
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases --alias-type copy $(VERSION)
	if ! git show gh-pages:index.html > /dev/null 2>&1; then $(BIN)/mike set-default $(lastword $(VERSION)); fi
	case "$(VERSION)" in *latest) $(BIN)/mike set-default latest;; esac

wheel: $(STAMP)  ## build a wheel in dist/
	rm -rf build  # setuptools would take files from it that are gone
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .stack runs build dist site .pytest_cache .mypy_cache .ruff_cache

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'
