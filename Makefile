# Needs python3 (3.11 or newer) and make; all else goes into .venv. Another Python: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_FLAGS := -q --disable-pip-version-check -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 4
COVERAGE_FLOOR := 90
FLOWER_TESTS := tests/fedtrain/flower tests/cli/flower
LOWEST := .venv-lowest
TORCH ?=
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-gpu test-lowest coverage lint format hooks docs wheel clean

help: ## list these targets
	@echo 'usage: make <target>'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

# Runs again only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'error: Python 3.11 or newer is needed, and "$(PYTHON)" is not; try: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo 'error: no virtual environment could be made (on Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@echo 'installing into $(VENV); the first time this fetches PyTorch and takes some minutes'
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@

demo: $(READY) ## check the theory on five clients, train Fed-CO2 on built-in images (start here)
	@$(BIN)/fedco2 theory --clients 5
	@echo
	@$(BIN)/fedco2 train --dataset digits --data standin --rounds 10 --model two-layer --set model.width=512
	@echo
	@echo 'Open report.html of the first folder in a browser, and figures/accuracy.png of the second.'
	@echo 'More: source .venv/bin/activate, then fedco2 --help'

test: $(READY) ## run the tests; make test ARGS="-k partition" runs some
	@$(PYTEST) $(ARGS)

test-all: $(READY) ## install Flower too, then run the tests with those of Flower
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev,flower]'
	@$(PYTEST) $(ARGS)

# Where pip installs torch for CPUs by default, install one with CUDA into .venv first.
test-gpu: $(READY) ## on a machine with a GPU: compare it with the CPU, time it, print one page
	@$(BIN)/python benchmarks/gpu.py $(ARGS)

# In a virtual environment of its own. TORCH=2.13.0 takes that version of torch instead of the lowest.
test-lowest: ## run the tests with the lowest versions that pyproject.toml allows
	@$(PYTHON) -m venv $(LOWEST)
	@sed '$(if $(TORCH),s/^torch==.*/torch==$(TORCH)/)' constraints-lowest.txt > $(LOWEST)/constraints.txt
	@echo 'installing the lowest versions into $(LOWEST)'
	@$(LOWEST)/bin/python -m pip install -q --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[test]'
	@$(subst $(BIN),$(LOWEST)/bin,$(PYTEST)) $(ARGS)

# The first step must not need Flower. Tests marked "minutes" take twenty of them.
coverage: $(READY) ## run the tests as CI does and measure how much of theory and fedtrain they reach
	@$(MAKE) --no-print-directory test ARGS='$(addprefix --ignore ,$(FLOWER_TESTS)) --cov --cov-report='
	@$(MAKE) --no-print-directory test-all ARGS='$(FLOWER_TESTS) -m "not minutes" --cov --cov-append --cov-report='
	@$(BIN)/coverage report --fail-under $(COVERAGE_FLOOR)

lint: $(READY) ## check style (ruff), types (mypy) and spelling (codespell)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/codespell

format: $(READY) ## rewrite the code in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

hooks: $(READY) ## check style, types and spelling before each commit (pre-commit)
	@$(BIN)/pre-commit install

# NO_MKDOCS_2_WARNING: the theme's notice about MkDocs 2, which pyproject.toml keeps out.
docs: $(VENV)/.docs-ready ## build the documentation into site/; every warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'open site/index.html in a browser; with the search: $(BIN)/python -m http.server --directory site'

$(VENV)/.docs-ready: $(READY)
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev,docs]'
	@touch $@

# From another folder, so that what answers is the wheel and not the source tree.
wheel: $(READY) ## build the wheel and try it in a clean virtual environment
	@rm -f dist/fedco2-*.whl
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --wheel --outdir dist . > /dev/null
	@set -e; away=$$(mktemp -d); trap 'rm -rf "$$away"' EXIT; \
	echo 'installing the wheel into a clean virtual environment'; \
	$(PYTHON) -m venv "$$away/venv"; \
	"$$away/venv/bin/python" -m pip install $(PIP_FLAGS) dist/fedco2-*.whl; \
	cd "$$away"; \
	venv/bin/python -c 'import cli, fedtrain, theory; assert all("site-packages" in m.__file__ for m in (cli, fedtrain, theory))'; \
	venv/bin/fedco2 --version; \
	venv/bin/fedco2 doctor; \
	venv/bin/fedco2 theory --clients 5; \
	venv/bin/fedco2 train --dataset digits --data standin --rounds 1 --set model.name=two-layer --set data.percent=0.02
	@echo "the wheel works: $$(ls dist/fedco2-*.whl)"

clean: ## remove virtual environments, dist and caches; results in runs/ stay
	@rm -rf $(VENV) $(LOWEST) dist build site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
