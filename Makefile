# The short way to everything; each target does its own set-up. `make help` lists them.

# rustup's own place, for shells that have not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

# What `make bench` passes on; `make bench ARGS=...` replaces it.
ARGS ?= --repeat 6 --html $(TARGET)/bench/report.html --json=$(TARGET)/bench/record.json

# How `make bench` is built: its disks are modelled, so that a fresh machine need not wait for `release`.
# Other members may not be, and their figures are those of the program as it is built for use.
BENCH_PROFILE ?= $(if $(filter command line environment,$(origin ARGS)),release,quick)

# A part of the program is enough for that, and builds sooner.
BENCH_PARTS = $(if $(filter quick,$(BENCH_PROFILE)),--no-default-features --features lab)

# What runs scripts of ours; with raidlab[dask] in it, `make bench-scale` measures seeds, too.
PYTHON ?= python3

# maturin's place, where it is not installed.
PYTHON_TOOLS := $(TARGET)/python-tools/bin

# What `make bench-arrays` passes on: peers, --rounds N, --seconds S, --dir DIR, --json FILE.
PEER_ARGS ?=

# What `make bench-engine` passes on: --level, --workload, --size; with AGAINST=REV also --rounds N.
ENGINE_ARGS ?=

# Where `make bench-tools` writes (the file system to be compared), and how many rounds.
TOOLS_DIR ?= $(TARGET)/bench
TOOLS_ROUNDS ?= 5

.PHONY: help setup setup-tests setup-all build wheel dist deb check-deb check-static release test test-all bench bench-engine law bench-peers bench-arrays bench-tools bench-published bench-scale clean
.DEFAULT_GOAL := help

help:
	@echo 'make build      set up this machine, build the program: $(TARGET)/release/raidlab'
	@echo 'make wheel      the Python package, built by maturin: $(TARGET)/wheels'
	@echo 'make dist       the program without debug information, man pages, completions: $(TARGET)/dist, $(TARGET)/generated'
	@echo 'make deb        a Debian package of them, with cargo-deb: $(TARGET)/debian'
	@echo 'make check-deb  installs that package in a minimal Debian of its own (debootstrap, root)'
	@echo 'make check-static  the same with the static program for this architecture, in a root of a busybox'
	@echo 'make release    all that is installed, with SHA256SUMS: $(TARGET)/release-files; each is tried'
	@echo 'make test       set up, then everything a change must pass: cargo xtask ci'
	@echo 'make test-all   the same with the slow sweeps (RAIDLAB_TEST=all)'
	@echo 'make bench      set up, measure; report and record in $(TARGET)/bench'
	@echo '                ARGS=... replaces the arguments: $(ARGS)'
	@echo 'make law           the constants of predict from cells of Linux md in model time; an hour and a half'
	@echo 'make bench-engine  the engine alone beside targets and copy ceilings; 17 GiB of memory'
	@echo '                AGAINST=REV: that revision and this tree in turn, ratios; ENGINE_ARGS=... chooses rows'
	@echo 'make bench-peers  parity beside ISA-L and SnapRAID; needs libisal-dev and snapraid'
	@echo 'make bench-arrays  our generator beside fio, arrays beside md (MD_NATIVE=DIR), fio, nbdkit, btrfs; PEER_ARGS=... chooses'
	@echo 'make bench-tools  bonnie++, fio, dd (and fio for IOzone) beside ours, in TOOLS_DIR=...'
	@echo 'make bench-published  every published experiment: docs/perf/published-figures.md; one to two hours'
	@echo 'make bench-scale  how it grows: members, cells, files, disks, seeds: docs/perf/scale.md; 10 minutes'
	@echo 'make setup      only the set-up: installs by apt what is missing, if anything is'
	@echo 'make clean      remove what was built'

setup:
	@sh scripts/setup

setup-tests:
	@sh scripts/setup --with-tests

setup-all:
	@sh scripts/setup --with-all

build: setup
	$(CARGO) build --release -p raidlab-cli

wheel: setup
	@mkdir -p $(TARGET)/wheels
	@rm -f $(TARGET)/wheels/raidlab-*.whl
	@command -v maturin >/dev/null || test -x $(PYTHON_TOOLS)/maturin || { \
		$(PYTHON) -m venv $(TARGET)/python-tools && $(PYTHON_TOOLS)/pip install --quiet 'maturin>=1.9.4,<2'; }
	PATH="$$PATH:$(PYTHON_TOOLS)" maturin build --release --locked --manifest-path python/Cargo.toml --out $(TARGET)/wheels

dist: setup
	$(CARGO) build --profile dist -p raidlab-cli
	@mkdir -p $(TARGET)/generated/man $(TARGET)/generated/completions
	$(TARGET)/dist/raidlab generate man $(TARGET)/generated/man
	$(TARGET)/dist/raidlab generate completions bash >$(TARGET)/generated/completions/raidlab.bash
	$(TARGET)/dist/raidlab generate completions zsh >$(TARGET)/generated/completions/_raidlab
	$(TARGET)/dist/raidlab generate completions fish >$(TARGET)/generated/completions/raidlab.fish

deb: dist
	@command -v cargo-deb >/dev/null || { echo 'installing cargo-deb'; $(CARGO) install --locked cargo-deb; }
	@rm -f $(TARGET)/debian/raidlab_*.deb
	$(CARGO) deb -p raidlab-cli --profile dist --no-build

check-deb: deb
	sh scripts/check-deb $(TARGET)/debian/raidlab_*.deb

check-static: setup
	@rm -f $(TARGET)/static-tried/*
	RELEASE_PROFILE=quick scripts/static $(shell uname -m)
	scripts/check-static $(TARGET)/static-tried/raidlab-*-$(shell uname -m)-linux-musl.tar.gz

# An architecture that cannot be built here is left out, with the reason; all else must succeed.
release: deb wheel
	@rm -rf $(TARGET)/release-files
	@for arch in x86_64 aarch64; do scripts/static $$arch || [ $$? -eq 77 ] || exit 1; done
	@mkdir -p $(TARGET)/release-files
	cp $(TARGET)/debian/raidlab_*.deb $(TARGET)/wheels/raidlab-*.whl $(TARGET)/release-files/
	cd $(TARGET)/release-files && sha256sum -- * >SHA256SUMS
	scripts/check-release $(TARGET)/release-files

test: setup-tests
	$(CARGO) xtask ci

test-all: setup-all
	PATH="$$PATH:$(abspath $(PYTHON_TOOLS))" RAIDLAB_TEST=all $(CARGO) xtask ci

bench: setup
	@mkdir -p $(TARGET)/bench
	$(CARGO) run --profile $(BENCH_PROFILE) -p raidlab-cli $(BENCH_PARTS) -- bench $(ARGS)

bench-engine: setup
	@mkdir -p $(TARGET)/bench
ifdef AGAINST
	CARGO=$(CARGO) $(PYTHON) scripts/engine-against $(AGAINST) $(ENGINE_ARGS)
else
	$(CARGO) run --release -p engine-table -- --json $(TARGET)/bench/engine.json $(ENGINE_ARGS)
endif

# The cells of Linux md that the law of `predict` is fitted to (an hour and a half on two CPUs), and its constants.
law: build
	@mkdir -p $(TARGET)/law
	for name in random bitmap flash raw deep streams background; do \
		RAIDLAB_PROGRAM=$(TARGET)/release/raidlab $(TARGET)/release/raidlab sweep benches/law/sweeps/$$name.toml \
			--db $(TARGET)/law/$$name.db && \
		$(TARGET)/release/raidlab report --db $(TARGET)/law/$$name.db --run all --json=$(TARGET)/law/$$name.json \
			>/dev/null || exit 1; done
	$(CARGO) run --release -p law-fit -- cells $(TARGET)/law/*.json >$(TARGET)/law/cells.json
	cp $(TARGET)/law/cells.json benches/law/cells.json
	$(CARGO) run --release -p law-fit -- fit >$(TARGET)/law/constants.json
	cp $(TARGET)/law/constants.json crates/predict/constants.json

bench-scale: build
	$(PYTHON) scripts/scale --json $(TARGET)/bench/scale.json

bench-published: build
	scripts/published

bench-peers: setup
	CARGO=$(CARGO) benches/peers/run

bench-arrays: setup
	CARGO=$(CARGO) benches/peers/arrays/run $(PEER_ARGS)

bench-tools: build
	@mkdir -p $(TOOLS_DIR)
	RAIDLAB=$(TARGET)/release/raidlab scripts/paired $(TOOLS_DIR) $(TOOLS_ROUNDS)

clean:
	$(CARGO) clean
