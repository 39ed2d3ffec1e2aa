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
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	$(MAKE) --no-print-directory BUILT=1 plugins model vocabularies
	$(CARGO) test --workspace
	PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/e2e

.PHONY: test-avx512
test-avx512: ## Kernels on an emulated AVX-512 VNNI processor (on Debian; minutes, so no part of `make test`)
	PYTHONDONTWRITEBYTECODE=1 python3 tests/emulated/avx512.py

FUZZ_SECONDS ?= 20
# The same inputs each time; 0 for others.
FUZZ_SEED ?= 1
FUZZ_TARGETS = schema lark regex gbnf plan walk
CARGO_FUZZ = target/tools/bin/cargo-fuzz
# Stable Rust does without a sanitizer; everything but the kernels is safe code.
FUZZ_FLAGS = --fuzz-dir tests/fuzz --sanitizer none --target-dir target/fuzz

.PHONY: fuzz
fuzz: $(CARGO_FUZZ) ## Each fuzz target for FUZZ_SECONDS, from the seeds in tests/fuzz
	$(CARGO_FUZZ) build $(FUZZ_FLAGS)
	for target in $(FUZZ_TARGETS); do \
		mkdir -p target/fuzz/corpus/$$target; \
		$(CARGO_FUZZ) run $(FUZZ_FLAGS) $$target target/fuzz/corpus/$$target tests/fuzz/seeds/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -seed=$(FUZZ_SEED) -timeout=25 -rss_limit_mb=4096 -max_len=2048 \
			-verbosity=0 -print_funcs=0 -print_final_stats=1; \
	done

$(CARGO_FUZZ):
	$(CARGO) install cargo-fuzz --version 0.13.2 --locked --quiet --root target/tools

.PHONY: vocabularies
vocabularies: ## Fetch the vocabularies that tests compare with, if they are not on this machine
	python3 tests/vocabularies.py

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
	python3 tests/bench/tasks.py --model "$$($(FORMWORK) model pull $(MODEL))"

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
