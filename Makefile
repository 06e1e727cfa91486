# The short way to everything; each target does its own set-up. `make help` lists them.

# rustup's own place, for shells that have not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

# What `make bench` passes on; `make bench ARGS=...` replaces it.
ARGS ?= --html $(TARGET)/bench/report.html --json $(TARGET)/bench/record.json

.PHONY: help setup setup-tests build test test-all bench bench-peers clean
.DEFAULT_GOAL := help

help:
	@echo 'make build      set up this machine, build the program: $(TARGET)/release/raidlab'
	@echo 'make test       set up, then everything a change must pass: cargo xtask ci'
	@echo 'make test-all   the same with the slow sweeps (RAIDLAB_TEST=all)'
	@echo 'make bench      set up, measure; report and record in $(TARGET)/bench'
	@echo '                ARGS=... replaces the arguments: $(ARGS)'
	@echo 'make bench-peers  parity beside ISA-L and SnapRAID; needs libisal-dev and snapraid'
	@echo 'make setup      only the set-up: installs by apt what is missing, if anything is'
	@echo 'make clean      remove what was built'

setup:
	@sh scripts/setup

setup-tests:
	@sh scripts/setup --with-guest

build: setup
	$(CARGO) build --release -p raidlab

test: setup-tests
	$(CARGO) xtask ci

test-all: setup-tests
	RAIDLAB_TEST=all $(CARGO) xtask ci

bench: setup
	@mkdir -p $(TARGET)/bench
	$(CARGO) run --release -p raidlab -- bench $(ARGS)

bench-peers: setup
	CARGO=$(CARGO) benches/peers/run

clean:
	$(CARGO) clean
