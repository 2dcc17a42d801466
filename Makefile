# Everything from a fresh Debian machine with Python 3.11 or later: `make setup`, `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SYSTEM_PACKAGES := git bwrap rg strace chromium-headless-shell postgresql
SCRIPT_PROGRAMS := gawk mawk jq sqlite3 tree xxd
PORTABLE_TESTS := values views core policy patterns files test_examples.py test_public_names.py
GOOSE_VERSION := 1.52.0
GOOSE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/podium-test-agents/goose-$(GOOSE_VERSION)

# Tests start many processes, and each would compile the sources anew if none of them might keep the result.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo fleet-demo test test-portable test-slow test-all check docs bench system script-programs power-programs goose agents clean

setup: $(VENV)/ready

demo: $(VENV)/ready
	$(BIN)/podium demo

fleet-demo: system $(VENV)/ready
	$(BIN)/python -m benchmarks.fleet_demo

test: system goose $(VENV)/ready
	$(BIN)/python tools/run_tests.py fast

# The tests that need no programs of the system beside git, and no sandbox.
test-portable: $(VENV)/ready
	$(BIN)/python -m pytest -m "not slow" -n 2 $(addprefix tests/,$(PORTABLE_TESTS))

test-slow: system script-programs power-programs goose $(VENV)/ready
	$(BIN)/python tools/run_tests.py slow

test-all: system script-programs power-programs goose $(VENV)/ready
	$(BIN)/python tools/run_tests.py fast slow

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What is generated from the source: the tables of keys, the API reference, and the page's kinds of events.
docs: $(VENV)/ready
	$(BIN)/python tools/key_tables.py
	$(BIN)/python tools/api_reference.py
	$(BIN)/python -m podium.web.dashboard.event_kinds

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[fast,fleet,local,otel,web,test]"
	touch $@

# What the tests need of the system. As root it is installed; otherwise it is said.
system:
	@missing=""; for package in $(SYSTEM_PACKAGES); do command -v $$package >/dev/null || ls -d /usr/lib/$$package/*/bin >/dev/null 2>&1 || missing="$$missing $$(case $$package in bwrap) echo bubblewrap;; rg) echo ripgrep;; *) echo $$package;; esac)"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq $$missing; \
	  else echo "please install:$$missing" >&2; exit 7; fi; \
	fi

# The programs that run generated scripts. Outside CI, the tests that need them are skipped if they cannot be installed.
script-programs:
	@missing=""; for program in $(SCRIPT_PROGRAMS); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq $$missing; \
	  elif [ -n "$$CI" ]; then echo "please install:$$missing" >&2; exit 7; \
	  else echo "missing:$$missing; the tests that run generated scripts are skipped" >&2; fi; \
	fi

# What the test that cuts the power needs: a disk whose writes are recorded. Elsewhere, that test is skipped.
power-programs:
	@missing=""; command -v gcc >/dev/null || missing="$$missing gcc libc6-dev"; command -v mkfs.ext4 >/dev/null || missing="$$missing e2fsprogs"; [ -e /usr/include/fuse3/fuse.h ] || missing="$$missing libfuse3-dev"; \
	if [ -n "$$missing" ] && [ -e /dev/fuse ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq $$missing; \
	  else echo "missing:$$missing; the test that cuts the power is skipped" >&2; fi; \
	fi

# A real coding agent for the tests of engines. Outside CI, the tests that need it are skipped if there is no npm.
goose:
	@if [ -x "$(GOOSE)/node_modules/@aaif/goose-binary-linux-x64/bin/goose" ]; then :; \
	elif command -v npm >/dev/null; then \
	  npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix "$(GOOSE)" @aaif/goose-binary-linux-x64@$(GOOSE_VERSION); \
	elif [ -n "$$CI" ]; then echo "please install npm: the tests need goose" >&2; exit 7; \
	else echo "npm is missing: the tests that need goose are skipped" >&2; fi

# The other coding agents, and a client, for the tests that are marked engines.
agents: $(VENV)/ready
	$(BIN)/python -m tests.installed_agents

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
