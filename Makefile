# Formwork. `make help` lists what there is.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CARGO ?= cargo
# One profile for everything native, so that dependencies are compiled once.
FORMWORK = target/debug/formwork
MODEL ?= smollm2
VENV = .venv
PYTHON = $(VENV)/bin/python

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: plugins ## See it work: model, upload, streamed fields, figures; ends by itself
	$(FORMWORK) demo --model $(MODEL)

.PHONY: serve
serve: plugins model ## Serve $(MODEL) on 127.0.0.1:8080 with the stock plugins
	$(FORMWORK) serve --model $(MODEL)

.PHONY: build
# Of the whole workspace, as in `make test`: features are then the same and dependencies built once.
build: ## The formwork command
	@[ -n "$(BUILT)" ] || $(CARGO) build --workspace --bin formwork

.PHONY: plugins
plugins: build ## Stock plugins into dist/plugins, examples into dist/examples
	rm -rf dist/plugins dist/examples
	$(FORMWORK) plugin build --stock plugins/* --out dist/plugins
	$(FORMWORK) plugin build examples/* --out dist/examples

.PHONY: model
model: build ## Fetch $(MODEL) if it is not on this machine
	$(FORMWORK) model pull $(MODEL)

.PHONY: test
test: venv ## Everything: unit, property, end to end with the OpenAI client
	$(CARGO) test --workspace --no-run
	$(MAKE) --no-print-directory BUILT=1 plugins model
	$(CARGO) test --workspace
	PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/e2e

.PHONY: venv
venv: $(VENV)/.ready ## A Python environment with the OpenAI client, for the end to end tests

$(VENV)/.ready: tests/e2e/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/e2e/requirements.txt
	touch $@

.PHONY: bench
bench: plugins model ## The figures of this machine
	$(CARGO) build --workspace --examples
	target/debug/examples/cost
	target/debug/examples/throughput
	$(FORMWORK) demo --model $(MODEL) --concurrent 8 --figures
	$(FORMWORK) demo --model $(MODEL) --concurrent 32 --figures

.PHONY: bench-peers
bench-peers: plugins model ## Formwork beside llama.cpp, which is built the first time (15 minutes)
	python3 tests/bench/peers.py --model "$$($(FORMWORK) model pull $(MODEL))"

.PHONY: count
count: ## Instructions of a decode step, against those checked in (where valgrind is installed)
	$(CARGO) test -p formwork-model --test instructions -- --nocapture

.PHONY: lint
lint: ## Formatting, clippy, house rules, and dependencies where cargo-deny is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace --test rules
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny check bans licenses sources; \
		$(CARGO) deny check advisories || { \
			$(CARGO) deny fetch db >/dev/null 2>&1 && exit 1; \
			echo "advisories: skipped, the advisory database cannot be reached"; }; \
	else echo "cargo deny: skipped, cargo-deny is not installed"; fi

.PHONY: clean
clean: ## Remove what was built
	rm -rf target dist $(VENV)
