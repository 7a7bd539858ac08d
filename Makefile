# Everything that is more than one cargo command. `make` alone lists the targets.

TARGET_DIRECTORY := $(abspath $(or $(CARGO_TARGET_DIR),target))
FUZZ_SECONDS ?= 60

# All programs and tests. Without tests, cargo leaves out what only they need of dependencies, so that these and everything that uses
# them would be built twice: for the programs, and for the tests.
build = cargo build --workspace --bins --tests

.DEFAULT_GOAL := help
# The targets share one cargo lock and two cores: one after the other.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: test-programs format lint doc book dependencies check-protocol test-workspace check-packages test-loom ## Install what the tests need, then run every check and test

.PHONY: test-programs
test-programs: ## Install the clients and the peer server that the tests drive
	scripts/install-test-programs

.PHONY: format
format: ## Check the formatting (cargo fmt repairs it)
	cargo fmt --all --check

.PHONY: lint
lint: ## Run clippy, and look for circles between modules and for riddles in prose
	cargo clippy --workspace --all-targets -- -D warnings
	cargo run --quiet -p gridhaul-lints -- modules
	cargo run --quiet -p gridhaul-lints -- words

.PHONY: doc
doc: ## Build the documentation, with warnings as errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

.PHONY: book
book: ## Build the documentation for readers in target/book, with mdbook
	scripts/book

.PHONY: dependencies
dependencies: ## Check licences, duplicates, sources and number of dependencies
	scripts/check-dependency-budget
	scripts/tool cargo-deny check --hide-inclusion-graph bans licenses sources

.PHONY: check-protocol
check-protocol: ## Check that nodes/src/generated.rs is made from nodes/proto/node.proto
	cargo run --quiet --manifest-path nodes/generate/Cargo.toml -- --check

.PHONY: advisories
advisories: ## Check dependencies against the RustSec database (fetches it)
	scripts/tool cargo-deny check advisories

# Cargo does not build another crate's program for a test, so the server is built first.
.PHONY: test-workspace
test-workspace: test-programs ## Run the unit, property and interoperability tests
	$(build)
	GRIDHAUL_SERVER=$(TARGET_DIRECTORY)/debug/gridhaul-server cargo test --workspace --no-fail-fast

.PHONY: guest-kernel
guest-kernel: test-programs ## Build the kernel of the guest, once: some minutes
	interop-tests/guest/build-kernel

# A guest is user-mode Linux with RDMA devices in software; see interop-tests/src/guest. All of the workspace is named, though
# most of it has no such test: for one package, cargo would build its dependencies anew with fewer features. A guest has one
# processor, so two of the targets run beside each other, the longest first.
.PHONY: test-rdma
test-rdma: guest-kernel ## Run the tests that need RDMA devices or TLS in the kernel, in guests
	$(build)
	printf '%s\n' test-rxe test-siw test-guests | xargs -n 1 -P 2 $(MAKE) --no-print-directory

.PHONY: test-guests
test-guests: ## Of these tests, those that start guests themselves
	cargo test --workspace --lib -- --ignored guest::
	$(call in_guest,none) test --workspace --lib -- --ignored tests::kernel:: with_the_kernel
	GRIDHAUL_SERVER=$(TARGET_DIRECTORY)/debug/gridhaul-server \
	    cargo test --workspace --test guest --no-fail-fast -- --ignored

.PHONY: test-rxe
test-rxe: ## Of these tests, those over soft-RoCE
	$(call in_guest,rxe) test --workspace --test verbs -- --ignored
	$(call in_guest,rxe) test --workspace --lib -- --ignored lost_queue_pairs_of_devices devices_keep_peers_out rings_of_devices

.PHONY: test-siw
test-siw: ## Of these tests, those over software iWARP
	$(call in_guest,siw) test --workspace --test verbs -- --ignored verbs:: fetching::
	$(call in_guest,siw) test --workspace --lib -- --ignored siw programs_and_adapters

# The crate is a workspace of its own, because it is under the GPL and needs libraries to build: its README says which.
.PHONY: test-async-rdma
test-async-rdma: guest-kernel ## Test the provider async-rdma, which is no part of the server, in a guest
	cargo build -p gridhaul-interop --bin guest
	cd drivers/rdma-async-rdma && cargo fmt --all --check && \
	    CARGO_TARGET_DIR=$(ASYNC_RDMA_DIRECTORY) cargo clippy --workspace --all-targets -- -D warnings && \
	    CARGO_TARGET_DIR=$(ASYNC_RDMA_DIRECTORY) cargo test --workspace && \
	    CARGO_TARGET_DIR=$(ASYNC_RDMA_DIRECTORY) $(call in_guest,rxe) test --test conformance -- --ignored --test-threads=1

ASYNC_RDMA_DIRECTORY = $(TARGET_DIRECTORY)/async-rdma

# Cargo that starts what it has built in a guest with such a network.
in_guest = GRIDHAUL_RDMA_ADDRESS=10.9.0.3 cargo --config "target.'cfg(all())'.runner = ['$(TARGET_DIRECTORY)/debug/guest', '--network', '$(1)', '--seconds', '1200', '--']"

# `--cfg loom` changes how every crate is compiled, so the models have a target directory of their own.
.PHONY: test-loom
test-loom: ## Check the lock-free parts of a transfer in every interleaving
	RUSTFLAGS="--cfg loom" cargo test -p gridhaul-transfer --release --lib --target-dir $(TARGET_DIRECTORY)/loom loom

# Optimized, because a simulated second of a channel takes much longer otherwise.
.PHONY: test-pacing
test-pacing: ## Test the search for a rate of the driver rdma on 1,400 simulated paths (takes minutes)
	cargo test --release -p gridhaul-rdma --lib -- --ignored --nocapture most_policers_are_found four_kinds_of_paths

.PHONY: release
release: ## Build the server and the client as they are shipped
	cargo build --release -p gridhaul-server -p gridhaul-client

.PHONY: packages
packages: ## Build Debian packages, RPMs and container images in target/packages
	packaging/build release

# Of the program of `cargo build`, because a release build takes minutes.
.PHONY: check-packages
check-packages: test-programs ## Package the debug build, and check the packages without installing them
	$(build)
	packaging/build debug
	packaging/test/static

.PHONY: test-packages
test-packages: test-programs packages ## Install the packages in systems that boot systemd, and use the service (root)
	packaging/test/static
	packaging/test/packages

.PHONY: test-reproducible
test-reproducible: packages ## Build the packages of the last commit a second time elsewhere, and compare
	packaging/test/reproducible

.PHONY: interop
interop: test-programs release ## Print every interoperability case, this server beside globus-gridftp-server
	$(INTEROP) interop-report

.PHONY: interop-clients
interop-clients: test-programs release ## Run every case of globus-url-copy with gridhaul guc and gridhaul copy in its place
	$(INTEROP) interop-report -- --client guc $(CASES_OF_COPIERS)
	$(INTEROP) interop-report -- --client copy $(CASES_OF_COPIERS)

.PHONY: bench
bench: test-programs release ## Measure this server beside globus-gridftp-server and the kernel's limit
	$(INTEROP) bench

.PHONY: bench-record
bench-record: test-programs release ## The same, and write docs/measurements; on a machine that does nothing else
	$(INTEROP) bench -- --record docs/measurements

.PHONY: bench-clients
bench-clients: test-programs release ## Measure gridhaul beside other clients, and write docs/measurements; on a machine that does nothing else
	$(INTEROP) bench-clients -- --record docs/measurements

.PHONY: bench-crowds
bench-crowds: test-programs release ## Time a client beside 1,000 hostile connections from other addresses
	$(INTEROP) bench-crowds

.PHONY: bench-nodes
bench-nodes: test-programs release ## Measure servers with 1 to 64 data nodes, and write docs/measurements; on a machine that does nothing else
	$(INTEROP) bench-nodes -- --record docs/measurements

.PHONY: bench-rdma-files
bench-rdma-files: release ## Measure copies from file to file over rdma beside TCP, and write docs/measurements; on a machine that does nothing else
	$(INTEROP) bench-rdma-files -- --record docs/measurements

.PHONY: bench-rdma
bench-rdma: guest-kernel release ## Measure rdma on simulated paths and over devices in software, and write docs/measurements
	cargo build --release -p gridhaul-interop --bin bench-rdma --bin bench-devices
	$(TARGET_DIRECTORY)/release/bench-rdma --record docs/measurements; simulated=$$?; \
	    GRIDHAUL_SERVER=$(TARGET_DIRECTORY)/release/gridhaul-server \
	    $(TARGET_DIRECTORY)/release/bench-devices --record docs/measurements && exit $$simulated

.PHONY: soak
soak: test-programs release ## Run 500 sessions for two minutes, copy 100,000 small files, and look for leaks
	$(INTEROP) soak
	$(INTEROP) soak -- --small-files 100000

.PHONY: kills
kills: test-programs release ## Kill data nodes, control servers and the network between them COUNT times from SEED on
	$(INTEROP) kills -- --seed $(SEED) --count $(COUNT)

.PHONY: many-entries
many-entries: ## Walk through trees of a million entries with the client, and look at its memory
	cargo test --workspace --test client -- --ignored many::

.PHONY: copy-kills
copy-kills: test-programs release ## Kill the client, a server or all of them during COUNT copies from SEED on, and resume them
	$(INTEROP) kills -- --client $(TARGET_DIRECTORY)/release/gridhaul --seed $(SEED) --count $(COUNT)

CASES_OF_COPIERS = globus-url-copy gsi/get gsi/put gsi/third-party gsi/stacks gsi/accounts nodes/third-party nodes/stacks nodes/restart

SEED ?= 1
COUNT ?= 200

INTEROP = GRIDHAUL_SERVER=$(TARGET_DIRECTORY)/release/gridhaul-server cargo run --release -p gridhaul-interop --bin

.PHONY: fuzz
fuzz: ## Fuzz each parser for FUZZ_SECONDS, 60 by default (nightly Rust and cargo-fuzz)
	scripts/fuzz $(FUZZ_SECONDS)
