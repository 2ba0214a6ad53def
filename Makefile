# Every command of this project. `make serve` and `make test` do their own set-up; a second run finds it done.
#
#   make serve [PORT=8484] [DATA=dir] [ARGS=…]     make test [ARGS="-k resume"]     make bench NAME=first_answer [QUICK=1]
#
# Python 3.11 or newer is all that is needed (ANTIPHON_PYTHON chooses the interpreter). pip and npm use your own settings.

ANTIPHON_PYTHON ?=
UV ?= uv
ARGS ?=

BIN := .venv/bin
PYTHON := $(BIN)/python
PIP := $(PYTHON) -m pip install --disable-pip-version-check --quiet
WEB_SOURCES := hatch_build.py $(shell find web -path web/node_modules -prune -o -type f -print 2>/dev/null)
MODEL_PLACE = $${ANTIPHON_MODELS:-}:$${XDG_CACHE_HOME:-}:$${HOME:-}

.PHONY: setup serve test test-all lint format bench lock docs stranger journeys clean model
.SUFFIXES:
MAKEFLAGS += --no-print-directory --no-builtin-rules

setup: .venv/runtime.stamp .venv/web.stamp model

serve: setup
	@exec $(BIN)/antiphon serve $(if $(PORT),--port $(PORT)) $(if $(DATA),--data "$(DATA)") $(ARGS)

test: setup lint
	@$(PYTHON) -m pytest $(ARGS)

# About an hour and three quarters, most of it kill -9 and chaos; after an interruption the next call goes on with what has not passed yet.
test-all: setup lint
	@$(PYTHON) tools/test_all.py $(ARGS)

lint: .venv/dev.stamp
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(PYTHON) tools/size.py
	@$(BIN)/lint-imports
	@$(BIN)/basedpyright
	@$(PYTHON) tools/web.py

format: .venv/dev.stamp
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup .venv/dev.stamp
	@test -n "$(NAME)" || { echo "make bench NAME=…; one of:" $(patsubst benchmarks/%.py,%,$(wildcard benchmarks/[a-z]*.py)) >&2; exit 2; }
	@exec $(PYTHON) -m benchmarks.$(NAME) $(if $(QUICK),--quick) $(ARGS)

# Versions and hashes only: no address of any registry enters the repository.
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock:
	$(LOCK) pyproject.toml --group build -o requirements.lock
	$(LOCK) pyproject.toml --group build --group dev -c requirements.lock -o requirements-dev.lock
	$(LOCK) pyproject.toml --all-extras -c requirements.lock -o requirements-extras.lock

docs: .venv/dev.stamp
	@$(PYTHON) -m tools.reference
	@$(PYTHON) -m mkdocs build --quiet --strict
	@echo build/site/index.html

journeys: setup .venv/dev.stamp
	@$(PYTHON) scripts/journeys.py $(ARGS)

stranger:
	@$(or $(ANTIPHON_PYTHON),python3) scripts/stranger.py $(ARGS)

clean:
	rm -rf .venv web/node_modules src/antiphon/edge/static build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .test-all

.venv/python.stamp:
	@set -e; for python in $(ANTIPHON_PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "set-up: virtual environment ($$($$python --version))" >&2; \
			$$python -m venv .venv; touch $@; exit 0; \
		fi; \
	done; echo "Antiphon needs Python 3.11 or newer; name it with ANTIPHON_PYTHON=…" >&2; exit 1

.venv/runtime.stamp: .venv/python.stamp requirements.lock pyproject.toml
	@echo "set-up: dependencies" >&2
	@$(PIP) --require-hashes --no-deps -r requirements.lock >&2
	@$(PIP) --no-deps --no-build-isolation --editable . >&2
	@$(PYTHON) -m compileall -q src
	@touch $@

.venv/dev.stamp: .venv/runtime.stamp requirements-dev.lock
	@echo "set-up: tools for tests" >&2
	@$(PIP) --require-hashes --no-deps -r requirements-dev.lock >&2
	@touch $@

.venv/web.stamp: .venv/runtime.stamp $(WEB_SOURCES)
	@echo "set-up: browser client" >&2
	@$(PYTHON) hatch_build.py >&2
	@touch $@

# The stamp holds where models are kept and the folder of the default one; another place, or a folder gone, is a new pull.
model: .venv/runtime.stamp
	@{ read -r place && read -r folder && [ "$$place" = "$(MODEL_PLACE)" ] && [ -d "$$folder" ]; } 2>/dev/null <.venv/model.stamp || { \
		echo "set-up: default model" >&2; \
		folder=$$($(BIN)/antiphon models pull) && printf '%s\n' "$(MODEL_PLACE)" "$$folder" >.venv/model.stamp; }
