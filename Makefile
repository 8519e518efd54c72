# SPDX-License-Identifier: MIT OR Apache-2.0
# A thin front for meson. `make` builds build/gpusys and build/libgpusys.so.

BUILD  ?= build
PREFIX ?= /usr/local
LIBDIR ?= lib
JOBS   ?= $(shell nproc)
NINJA  := ninja -j$(JOBS)

.PHONY: all deps demo check check-long bench install man fmt clean

all: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD)

$(BUILD)/build.ninja:
	@deps/install build
	meson setup $(BUILD) --prefix=$(PREFIX) --libdir=$(LIBDIR)

# Debian packages, from the list deps/debian.txt; quick when they are installed.
deps:
	@deps/install build test vm

demo:
	@deps/install build
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) examples/demo

# The last line is "N passed, N failed, N skipped".
check: deps
	@tests/check

check-long: deps
	@tests/check --long

bench:
	@deps/install build test bench vm
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) bench/run

install: all
	meson configure $(BUILD) -Dprefix=$(PREFIX) -Dlibdir=$(LIBDIR)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# Bring the manual page's list of commands up to what the command says of itself.
man: all
	@tests/house/man --update $(BUILD)/gpusys

fmt:
	@tests/house/sources c | xargs clang-format -i

clean:
	rm -rf $(BUILD) build-check-*
