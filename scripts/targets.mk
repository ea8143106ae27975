# Phony targets: what a person types. The rules of the Makefile above build files.
FUZZ_SECONDS ?= 60
PART ?= A
MODEL ?= $$(scripts/fetch-model.sh)
DEMO_PROMPT ?= Write one sentence about the sea.

.PHONY: report unit examples replay bench-peers bench-ops check-abi abi man
# Groups of binaries for the current MODE, built together so that -j can parallelize them.
unit: $(TESTBIN)
replay: $(REPLAYBIN)
examples: $(EXBIN)

deps:
	./bootstrap deps

# MODEL=FILE uses another model. The default model is fetched once into the user's cache directory.
# Builds the libraries too, so that the examples of the README link.
demo: all
	@model=$(MODEL) && ./kvik generate "$$model" "$(DEMO_PROMPT)" --chat --max-new-tokens 48 --cache-report
	@echo 'In this directory and shell, kvik becomes a command and a Python package, and a chat begins, with:' >&2
	@echo '    export PATH=$$PWD:$$PATH PYTHONPATH=$$PWD/python' >&2
	@echo "    kvik run $$(basename $(MODEL) .gguf)" >&2

check:
	@scripts/check.sh

# Compares the binary interface with the committed description; abi writes the description anew.
check-abi: libkvik.so
	@scripts/check-abi.sh
abi: libkvik.so
	@scripts/check-abi.sh write

# The Python package in the source tree: its declarations are written from the header, and it loads ./libkvik.so.
.PHONY: python
python: python/kvik/_abi.py libkvik.so
python/kvik/_abi.py: include/kvik.h scripts/make-abi.py
	$(Q)scripts/make-abi.py include/kvik.h $@

# The reference of the package, from its docstrings.
.PHONY: python-reference
python-reference: build/API-PYTHON.md
build/API-PYTHON.md: scripts/make-python-reference.py $(wildcard python/kvik/*.py python/kvik/models/*.py)
	$(Q)scripts/make-python-reference.py python/kvik $@

# GUIDE is a directory with the snippets of Hugging Face's guide to caches, which are not in this repository.
.PHONY: test-guide
GUIDE ?= ../shared/guide
test-guide: python
	@scripts/test-guide.sh $(GUIDE)

test:
	@MAKE="$(MAKE)" scripts/run-tests.sh

# The tests that are too slow for every change: the long forms of the tests, a million model-checker operations
# under ASan, threads under TSan, and a minute of mutation per parser. SECTIONS="units tsan" runs only these.
test-long:
	@MAKE="$(MAKE)" scripts/run-tests.sh long $(SECTIONS)

# Cross-compiles for 64-bit ARM and runs the tests of kernels, golden cases and identity under qemu; takes many minutes.
# NAMES="dev_mm golden" runs only these.
.PHONY: test-arm
test-arm:
	@MAKE="$(MAKE)" scripts/test-arm.sh $(NAMES)

test-classes:
	@scripts/test-classes.sh

golden: all
	@$(MAKE) MODE=release build/release/test_golden build/release/test_golden_script build/release/test_processors
	@build/release/test_golden $(PART)
	@build/release/test_golden_script $(PART)
	@[ "$(PART)" != C ] || build/release/test_processors

# Every policy, codec, tier and operation on every architecture; takes minutes. make test runs a part.
matrix: all
	@$(MAKE) MODE=release build/release/test_matrix build/release/test_matrix_kv
	@build/release/test_matrix all
	@build/release/test_matrix_kv all

asan tsan:
	@MAKE="$(MAKE)" scripts/run-tests.sh $@

fuzz:
	@command -v clang >/dev/null || { echo "make fuzz needs clang (apt-get install clang)"; exit 1; }
	@$(MAKE) MODE=fuzz $(FUZZSRC:tests/fuzz/fuzz_%.c=build/fuzz/fuzz_%)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

# report: measures every cache strategy and renews the pictures and tables of README, guide and comparison. Takes minutes.
report: all
	@model=$(MODEL) && scripts/report.sh "$$model"

# bench: the whole model, with every strategy; scripts/bench.sh names what can be set.  bench-ops: single operations, no model needed.
WHOLE := generate rates steps strategies speculate arrivals offload reuse start
bench: all $(WHOLE:%=$(B)/bench_%) $(B)/bench_mm
	@model=$(MODEL) && scripts/bench.sh "$$model"
# bench-peers: kvik next to llama.cpp and Transformers in one run; scripts/bench-peers.sh names what can be set.
bench-peers: all $(B)/bench_rates
	@model=$(MODEL) && scripts/bench-peers.sh "$$model"
bench-ops: $(BENCHBIN)
	@for b in $(filter-out $(WHOLE:%=$(B)/bench_%) $(B)/bench_lengths,$(BENCHBIN)); do echo "== $$b"; $$b || exit 1; done

# The manual pages of the library, one for each section and function of the header. Without python3 there are none.
MAN3 := build/man/man3
man: $(MAN3)/kvik.3
$(MAN3)/kvik.3: include/kvik.h man/kvik.1 scripts/make-man.py
	@if command -v python3 >/dev/null; then scripts/make-man.py include/kvik.h $(MAN3); \
	else echo "man: python3 is not installed, so the library has no manual pages"; fi

# Some shells leave the ~ of PREFIX=~/.local as it is, and kvik.pc would name no directory.
override PREFIX := $(PREFIX:~/%=$(HOME)/%)
# What is installed has no debug symbols. STRIP=true keeps them; a cross compiler has a strip of its own.
STRIP ?= strip
INSTALL_BIN = install -m 755 -s --strip-program=$(STRIP)
install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	  $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man3 \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(INSTALL_BIN) kvik $(DESTDIR)$(PREFIX)/bin/kvik
	./kvik completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kvik
	./kvik completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kvik
	$(INSTALL_BIN) libkvik.so $(DESTDIR)$(PREFIX)/lib/libkvik.so.$(VERSION)
	ln -sf libkvik.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libkvik.so.$(SOVERSION)
	ln -sf libkvik.so.$(SOVERSION) $(DESTDIR)$(PREFIX)/lib/libkvik.so
	install -m 644 libkvik.a $(DESTDIR)$(PREFIX)/lib/libkvik.a
	install -m 644 include/kvik.h $(DESTDIR)$(PREFIX)/include/kvik.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's| *@URING@|$(URING:%= %)|' \
	  -e 's| *@AUDIO@|$(AUDIO:%= %)|' \
	  scripts/kvik.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/kvik.pc
	install -m 644 man/kvik.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvik.1
	if [ -f $(MAN3)/kvik.3 ]; then install -m 644 $(MAN3)/*.3 $(DESTDIR)$(PREFIX)/share/man/man3; fi
