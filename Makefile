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

.PHONY: help check test bench fuzz
help:
	@echo 'make bench   the insert benchmark on the embedded engine (1 M rows), its table and report'
	@echo 'make check   formatting, lints, rules of the house'
	@echo 'make test    check and every test'
	@echo 'make fuzz    every decoder under libFuzzer, SECONDS_EACH=60'

check:
	@$(XTASK) check

test:
	@$(XTASK) test

bench:
	$(CARGO) build --release --locked --package lab
	$(CARGO) run --quiet --release --locked --package lab -- run ibench --target trefoil --rows 1m --form 2023 --seconds 10

# Every decoder and every sequence of operations under libFuzzer, SECONDS each.
SECONDS_EACH ?= 60
fuzz:
	@$(XTASK) fuzz $(SECONDS_EACH)

# Named in the design, not built yet.
.PHONY: bench-peers mariadb mariadb-test soak package
bench-peers mariadb mariadb-test soak package:
	@echo 'make $@: not built yet' >&2; exit 2
