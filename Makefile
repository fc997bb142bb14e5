# `make demo` and `make test` need git, make and Python 3.11 or newer; everything else goes into .venv.
SHELL  := /bin/bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
# A file's tests stay in one process, which makes what they share once; in order, so that the last ones are short.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Containers often set this, and each of the tests' many processes would then compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Not docs itself: ruff would set the code in its pages anew.
SOURCES := src tests benchmarks examples docs/*.py

.PHONY: help demo test check lint format docs pictures notebook bench oracles floors clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/app.done  ## train a small network with SGD and with Bort-S on built-in digits, and write a report on both: runs/demo/report.html
	@$(BIN)/bort demo

test: lint $(VENV)/browser.done  ## lint, types and the whole test suite, warnings as errors
	@$(BIN)/python -m pytest $(PARALLEL)

check: lint  ## the part of `make test` to run while working: without the tests that take longer than 0.15 s
	@$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not long"

lint: $(VENV)/dev.done  ## ruff (lint and format) and mypy in strict mode
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy

format: $(VENV)/dev.done  ## let ruff put the sources in order
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

docs: $(VENV)/dev.done  ## make the documentation's site with the API reference, warnings as errors: site/index.html
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs -d build/doctrees . site
	@echo "open site/index.html"

pictures: $(VENV)/browser.done  ## make all pictures of README and docs anew: some minutes
	@$(BIN)/python docs/_pictures.py

notebook: $(VENV)/dev.done  ## execute examples/look-inside.ipynb and write its outputs into it: about a minute
	@$(BIN)/python -m tests.examples.notebook

bench: $(VENV)/dev.done  ## time the optimizer step on this machine
	@$(BIN)/python benchmarks/step.py

oracles: $(VENV)/dev.done  ## PyTorch's own optimizer tests and Quantus' metrics, on ours (tests/oracles/README.md); minutes, and the network
	@$(PIP) --quiet expecttest quantus
	@$(BIN)/python tests/oracles/torch_optim.py $(if $(FILE),--file $(FILE))
	@$(BIN)/python tests/oracles/quantus_metrics.py

floors: $(VENV)/dev.done  ## the fast tests with the oldest dependencies that pyproject.toml allows (docs/release.md); five minutes, and the network
	@$(PIP) --quiet uv
	@$(BIN)/python -m tests.release.floors

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bort needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	@echo "==> making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "No virtual environment: on Debian, apt install python3-venv"; exit 1; }

# Pages are tested in a real browser, best in Chromium's headless shell: the same without its windows, in half the time.
# Without a browser (no root, no network) those tests say so and are skipped.
$(VENV)/browser.done: | $(VENV)/dev.done
	@command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null || { echo "==> installing Chromium"; \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        export DEBIAN_FRONTEND=noninteractive; apt-get update -qq \
	        && { apt-get install -y -qq chromium-headless-shell || apt-get install -y -qq chromium; }; \
	    else $(BIN)/playwright install --only-shell chromium; fi >$(VENV)/browser.log 2>&1 \
	    || echo "no browser could be installed ($(VENV)/browser.log); tests of pages will be skipped"; }
	@touch $@

# uv installs in a quarter of pip's time: it loads and unpacks many packages at once, and compiles no modules that nobody imports.
# What it says goes to a log; what is seen is one line that moves. Where there is no uv, or it fails, pip may do: that has its own
# settings of mirrors and proxies.
$(VENV)/%.done: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing bort[$*] into $(VENV): torch and its CUDA libraries are about 3 GB the first time"
	@set -o pipefail; { { [ -x $(BIN)/uv ] || $(PIP) --quiet uv; } \
	    && $(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --editable '.[$*]'; } 2>&1 \
	    | tee $(VENV)/install.log | awk '!/^ [-+~] / { printf "\r\033[K    %s", $$0; fflush() } END { print "" }' \
	    || { cat $(VENV)/install.log; echo "==> uv could not install it, see above; trying pip"; $(PIP) --quiet --editable '.[$*]'; }
	@touch $@ $(if $(filter dev,$*),$(VENV)/app.done)
