# Trefoil's commands. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Cargo's downloads: where cargo already keeps them, otherwise in our own cache folder.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trefoil
ifndef CARGO_HOME
ifeq ($(wildcard $(HOME)/.cargo/registry $(HOME)/.cargo/config $(HOME)/.cargo/config.toml),)
export CARGO_HOME := $(CACHE)/cargo
endif
endif

# With the committed Cargo.lock cargo asks the network only for what it has never downloaded: the second run works
# off-line.
CARGO ?= cargo
XTASK := $(CARGO) run --quiet --locked --package xtask --

.PHONY: help check test bench fuzz soak
help:
	@echo 'make bench        the insert benchmark on the embedded engine (1 M rows), its table and report'
	@echo 'make bench-peers  the same with rocksdb, sqlite, lmdb, redb and fjall beside it, on equal terms'
	@echo 'make gallery      docs/gallery anew: the five studies in miniature, their tables and charts'
	@echo 'make check        formatting, lints, rules of the house'
	@echo 'make test         check and every test'
	@echo 'make mariadb      a private MariaDB server with ENGINE=TREFOIL and a client; nothing is installed'
	@echo 'make mariadb-test the smoke test through that server, small benchmarks on servers, and suites of the server (an hour)'
	@echo 'make package      mariadb-plugin-trefoil_VERSION_ARCH.deb in target/package'
	@echo 'make soak         the simulator and killed processes for SOAK_SECONDS=1800'
	@echo 'make fuzz         every decoder under libFuzzer, SECONDS_EACH=60'

check:
	@$(XTASK) check

test:
	@$(XTASK) test

bench:
	$(CARGO) build --release --locked --package lab
	$(CARGO) run --quiet --release --locked --package lab -- run ibench --target trefoil --rows 1m --form 2023 --seconds 10

# The gallery of docs/gallery: the five studies in miniature, with whatever servers can be had.
GALLERY := target/gallery
.PHONY: gallery
gallery:
	$(CARGO) build --release --locked --package lab
	for plan in seed-000 seed-001 seed-002 seed-003 seed-004; do \
	  rm -rf $(GALLERY)/$$plan docs/gallery/$$plan; \
	  target/release/lab run plans/$$plan.toml --scale mini --out $(GALLERY)/$$plan --quiet > /dev/null; \
	  target/release/lab report $(GALLERY)/$$plan --gallery docs/gallery/$$plan; \
	done

# Every decoder and every sequence of operations under libFuzzer, SECONDS each.
SECONDS_EACH ?= 60
fuzz:
	@$(XTASK) fuzz $(SECONDS_EACH)

# The simulator and killed processes in turns, with new seeds each time.
SOAK_SECONDS ?= 1800
soak:
	@$(XTASK) soak $(SOAK_SECONDS)

# Trefoil and other embedded engines in turns, on equal terms: one client, one durability, one budget, everything built
# for this processor and kept in target/peers. Three random secondary indexes from the start, 100 rows a transaction.
# A smaller run: make bench-peers ROWS=100k SECONDS=2 REPEAT=1 TARGETS='trefoil redb'
# Two ways to compress: make bench-peers TARGETS='trefoil trefoil:compression=zstd rocksdb'; COMPRESSION=zstd is for all.
ROWS ?= 3m
SECONDS ?= 10
REPEAT ?= 5
DURABILITY ?= write
BUDGET ?= 1g
COMPRESSION ?=
TARGETS ?= trefoil rocksdb sqlite lmdb redb fjall
# RocksDB's bindings are made with libclang.
LIBCLANG_DIRS = $(LIBCLANG_PATH) /usr/lib/llvm*/lib /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib
LIBCLANG = $(wildcard $(addsuffix /libclang[.-][s0-9]*,$(LIBCLANG_DIRS)))
BENCHED = $(if $(LIBCLANG),$(TARGETS),$(filter-out rocksdb%,$(TARGETS)))
PEERS = $(filter rocksdb sqlite lmdb redb fjall,$(sort $(foreach target,$(BENCHED),$(firstword $(subst :, ,$(target))))))
comma := ,
empty :=
PEER_FEATURES = $(subst $(empty) $(empty),$(comma),$(PEERS))

.PHONY: bench-peers
bench-peers:
	$(if $(filter-out $(BENCHED),$(TARGETS)),@echo 'skipped: rocksdb$(comma) install libclang-dev' >&2)
	$(if $(filter rocksdb,$(PEERS)),@echo 'RocksDB takes about 13 minutes to build on 2 cores$(comma) the first time only' >&2)
	RUSTFLAGS='-C target-cpu=native' CFLAGS='-march=native' $(CARGO) build --release --locked --package lab \
	  --target-dir target/peers --features '$(PEER_FEATURES)'
	target/peers/release/lab run ibench $(foreach target,$(BENCHED),--target '$(target)') --form 2017 --rows $(ROWS) \
	  --seconds $(SECONDS) --repeat $(REPEAT) --clients 1 --durability $(DURABILITY) --budget $(BUDGET) \
	  $(if $(COMPRESSION),--compression $(COMPRESSION))

# A private server, fetched by the machine's package client into target/mariadb: mariadb/mariadb.sh --help.
.PHONY: mariadb mariadb-test
mariadb:
	@CARGO='$(CARGO)' mariadb/mariadb.sh run

mariadb-test:
	@$(XTASK) test mariadb lab-servers
	@CARGO='$(CARGO)' TREFOIL_PROFILE=sim TREFOIL_BUILD='--workspace --lib --bin differential --test readme' mariadb/mariadb.sh suites all

# A package of the plugin for the version of the server that `make mariadb` runs.
.PHONY: package
package:
	@CARGO='$(CARGO)' mariadb/mariadb.sh package
