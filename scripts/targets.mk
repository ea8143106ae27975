# Targets that a person types. `make help` prints the line "# TARGET: sentence" above each.
FUZZ_SECONDS ?= 60
PART ?= A
MODEL ?= $$(scripts/fetch-model.sh)
DEMO_PROMPT ?= Write one sentence about the sea.

# What programs include.
HEADERS := $(sort $(wildcard include/*.h))

.PHONY: report unit examples replay bench-peers bench-ops check-abi abi man help tidy
# help: lists the targets
help:
	@echo "kvik $(VERSION): make TARGET [NAME=VALUE...]"; echo
	@sed -n 's/^# \([a-z][a-z_.-]*\): \(.*\)/\1|\2/p' scripts/*.mk | sort -u | awk -F'|' '{ printf "  %-21s %s\n", $$1, $$2 }'

# compile_commands.json: how each C file is compiled, for clangd and editors
compile_commands.json: Makefile scripts/targets.mk
	$(Q)MAKE="$(MAKE)" scripts/compile-commands.sh >$@.new && mv $@.new $@

# tidy: runs clang-tidy on all C files of src; a minute
tidy:
	@scripts/tidy.sh

# all: the command and both libraries; MODE=asan, tsan or fuzz builds them with sanitizers
# unit: builds the unit tests; one alone is build/release/test_NAME
unit: $(TESTBIN)
# What kvik plan measures behind is tested without measuring.
$(B)/test_plan_few: $(B)/src/cli/plan_few.o
# The essay and the toy store take most of its time.
build/release/tests/unit/test_dev_attn.o: OPT += -O2
# replay: builds the fuzz targets with a driver that replays their corpora
replay: $(REPLAYBIN)
# The fuzz target of requests links the server without its sockets: without the files that call libevent.
$(B)/replay_request $(B)/fuzz_request: $(filter-out %/net.o %/wire.o %/mailbox.o %/listen.o,$(filter $(B)/src/serve/%,$(CLIOBJ)))
# Linked alone, each test takes a quarter of a second under ASan. The gate (TOGETHER=1) links those without objects of
# their own as one program, and the files build/*/test_NAME are names of it. test_shared has a getaddrinfo of its own.
ifdef TOGETHER
JOINED := $(filter-out $(patsubst %,$(B)/test_%,kv bench_judge plan_few shared $(ALL_CODECS) $(FAULTS)),$(TESTBIN))
$(B)/tests/unit/together.o: $(JOINED:$(B)/%=$(B)/tests/unit/%.o) scripts/together.sh
	$(Q)CC="$(CC)" LD="$(LD)" OBJCOPY="$(OBJCOPY)" scripts/together.sh $(@D) $(JOINED:$(B)/%=%)
$(B)/tests/together: $(B)/tests/unit/together.o $(B)/tests/hidden/device.o $(B)/tests/unit/case_filter.o $(B)/tests/codec/codec_shuffle.o $(B)/kvik.o
	$(Q)$(CC) $(OPT) $(TEST_LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka
$(JOINED): $(B)/tests/together
	$(Q)ln -f $< $@
	@ln -sf $(MODE)/$(@F) build/$(@F)
endif
# examples: builds the examples of C
examples: $(EXBIN)

libs: $(LIBOBJ)
# clean: removes everything that was built
clean:
	rm -rf build kvik libkvik.so libkvik.so.* libkvik.a

# deps: installs with apt what is missing
deps:
	./bootstrap deps

# demo: answers a question with a small model, which is fetched once; MODEL=FILE uses another
# The libraries are built too, so that the examples of the README link.
demo: all
	@model=$(MODEL) && ./kvik generate "$$model" "$(DEMO_PROMPT)" --chat --max-new-tokens 48 --cache-report
	@echo 'In this directory and shell, kvik becomes a command and a Python package, and a chat begins, with:' >&2
	@echo '    export PATH=$$PWD:$$PATH PYTHONPATH=$$PWD/python' >&2
	@echo "    kvik run $$(basename $(MODEL) .gguf)" >&2

# check: floors, sizes, names, layout and docstrings; clang-tidy on changed files and ruff where they are installed
check:
	@scripts/check.sh

# check-abi: compares the binary interface with the committed description
check-abi: libkvik.so
	@scripts/check-abi.sh
# abi: writes the description of the binary interface anew
abi: libkvik.so
	@scripts/check-abi.sh write

# api: writes the declarations that make check compares the header with; for a release alone
.PHONY: api
api:
	@scripts/check-api.py write

# python: the package in the source tree, which loads ./libkvik.so; PYTHONPATH=python uses it
.PHONY: python
python: python/kvik/_abi.py libkvik.so
python/kvik/_abi.py: $(HEADERS) scripts/make-abi.py
	$(Q)scripts/make-abi.py $(HEADERS) $@

# python-reference: writes build/API-PYTHON.md from the docstrings
.PHONY: python-reference
python-reference: build/API-PYTHON.md
build/API-PYTHON.md: scripts/make-python-reference.py $(wildcard python/kvik/*.py python/kvik/models/*.py)
	$(Q)scripts/make-python-reference.py python/kvik $@

# test-guide: runs the snippets of Hugging Face's guide to caches, in GUIDE=DIR (they are not in this repository)
.PHONY: test-guide
GUIDE ?= ../shared/guide
test-guide: python
	@scripts/test-guide.sh $(GUIDE)

# test-transformers: runs tests of Transformers with kvik in its place, from TESTS=DIR, the `tests` of a checkout of it
.PHONY: test-transformers
TESTS ?= ../shared/transformers/tests
PYTHON ?= python3
test-transformers: python
	@$(PYTHON) -W ignore scripts/test-transformers.py $(TESTS)

# test-serve: kvik serve against its clients' packages, schemathesis and prometheus-client, its masks against llguidance's, in build/serve-venv; minutes
.PHONY: test-serve
test-serve: kvik $(B)/bench_schema
	@scripts/test-serve.sh

# test-hub: kvik pull against huggingface_hub, in build/hub-venv; needs a download
.PHONY: test-hub
test-hub: kvik
	@scripts/test-hub.sh

# test: every test, about 15 minutes on two cores
test:
	@MAKE="$(MAKE)" scripts/run-tests.sh

# test-long: what is too slow for every change; SECTIONS="units checker tsan fuzz soak arm" are its parts
test-long:
	@MAKE="$(MAKE)" scripts/run-tests.sh long $(SECTIONS)

# The kernels of src/dev/cuda are one source for nvcc and for cc, which makes the library that tests load.
CUDA_KERNELS := $(sort $(wildcard src/dev/cuda/k_*.cu))
CUDA_ARCHS ?= 80 90 100
NVCC ?= nvcc
$(B)/%.cu.o: %.cu Makefile
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALLFLAGS) -c -o $@ -x c $<
$(B)/libkvik-cuda-emulated.so: $(CUDA_KERNELS:%=$(B)/%.o) $(B)/tests/cuda/rt_emulated.o
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(OPT) -o $@ $^ -lm
$(patsubst %,$(B)/test_%,cuda cuda_guard cuda_order cuda_seal devices): | $(B)/libkvik-cuda-emulated.so

# cuda: the library with the kernels for GPUs, libkvik-cuda.so; needs nvcc (CUDA_ARCHS="80 90 100", the last as PTX too)
.PHONY: cuda
cuda: libkvik-cuda.so
libkvik-cuda.so: $(CUDA_KERNELS) src/dev/cuda/rt_cuda.cu $(wildcard src/dev/cuda/*.h)
	@echo "  NVCC  $@"
	$(Q)$(NVCC) -shared -o $@ -std=c++17 -O3 --fmad=false -Isrc -Iinclude -Xcompiler -fPIC,-fvisibility=hidden \
	  -diag-suppress 177 $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	  -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
	  $(CUDA_KERNELS) src/dev/cuda/rt_cuda.cu

# test-cuda: the device cuda on a GPU: operations, golden cases, compute-sanitizer; DRY=--dry tries the script without one
# bench-cuda: the device cuda beside the floors of the GPU; MODEL=file measures it too, DRY=--dry tries the script without a GPU
.PHONY: test-cuda bench-cuda
test-cuda:
	@MAKE="$(MAKE)" scripts/test-cuda.sh $(DRY)
bench-cuda:
	@MAKE="$(MAKE)" scripts/bench-cuda.sh $(DRY) $(if $(filter command line environment,$(origin MODEL)),$(MODEL))

# test-arm: cross-compiles for 64-bit ARM and tests under qemu; many minutes; NAMES="dev_mm golden" runs only these
.PHONY: test-arm
test-arm:
	@MAKE="$(MAKE)" scripts/test-arm.sh $(NAMES)

# test-classes: prints the classes of defects of other engines, and what happens in kvik
test-classes:
	@scripts/test-classes.sh

# golden: recorded runs of Transformers; PART=A, B, C, D or own
golden: all
	@$(MAKE) MODE=release build/release/test_golden build/release/test_golden_script build/release/test_processors
	@build/release/test_golden $(PART)
	@case $(PART) in C | D) build/release/test_golden_script $(PART) ;; esac
	@[ "$(PART)" != C ] || build/release/test_processors

# matrix: every policy, codec, tier and operation on every architecture; minutes (make test runs a part)
matrix: all
	@$(MAKE) MODE=release build/release/test_matrix build/release/test_matrix_kv
	@build/release/test_matrix all
	@build/release/test_matrix_kv all

# asan: unit tests and corpora under ASan and UBSan
# tsan: unit tests and corpora under ThreadSanitizer
asan tsan:
	@MAKE="$(MAKE)" scripts/run-tests.sh $@

# fuzz: libFuzzer on every parser for FUZZ_SECONDS=60 each; needs clang
fuzz:
	@command -v clang >/dev/null || { echo "make fuzz needs clang (apt-get install clang)"; exit 1; }
	@$(MAKE) MODE=fuzz $(FUZZSRC:tests/fuzz/fuzz_%.c=build/fuzz/fuzz_%)
	@scripts/fuzz.sh $(FUZZ_SECONDS)
# fuzz-day: HOURS=24 of processor time over all targets in turn; goes on where it was interrupted (scripts/fuzz-day.sh)
.PHONY: fuzz-day
fuzz-day:
	@$(MAKE) MODE=fuzz $(FUZZSRC:tests/fuzz/fuzz_%.c=build/fuzz/fuzz_%)
	@scripts/fuzz-day.sh run

# report: measures every cache strategy and renews the pictures and tables of README, guide and comparison; minutes
report: all
	@model=$(MODEL) && scripts/report.sh "$$model"

# bench: measures the whole model with every strategy; scripts/bench.sh names what can be set
WHOLE := generate rates steps strategies speculate arrivals offload reuse start
bench: all $(WHOLE:%=$(B)/bench_%) $(B)/bench_mm
	@model=$(MODEL) && scripts/bench.sh "$$model"
# bench-peers: measures kvik next to llama.cpp and Transformers in one run
bench-peers: all $(B)/bench_rates
	@model=$(MODEL) && scripts/bench-peers.sh "$$model"
# bench-quality: what the cache types of kvik, llama.cpp and, with IK_LLAMA=FOLDER, ik_llama.cpp lose on the same text
.PHONY: bench-quality
bench-quality: all $(B)/bench_rates
	@model=$(MODEL) && scripts/bench-quality.sh "$$model"
# bench-serve: measures kvik serve next to llama-server in one run
.PHONY: bench-serve
bench-serve: kvik
	@model=$(MODEL) && scripts/bench-serve.sh "$$model"
# bench-fleet: measures three replicas behind routers; needs smg in build/serve-venv (make test-serve installs it) and nginx
.PHONY: bench-fleet
bench-fleet: kvik
	@model=$(MODEL) && build/serve-venv/bin/python bench/fleet.py --model "$$model" --json build/fleet.json
# bench-ops: measures single operations; needs no model
bench-ops: $(BENCHBIN)
	@for b in $(filter-out $(patsubst %,$(B)/bench_%,$(WHOLE) lengths cuda floors random_model),$(BENCHBIN)); do echo "== $$b"; $$b || exit 1; done

# man: the manual pages of the library, one for each section and function of the headers; needs python3
MAN3 := build/man/man3
man: $(MAN3)/kvik.3
$(MAN3)/kvik.3: $(HEADERS) man/kvik.1 scripts/make-man.py
	@if command -v python3 >/dev/null; then scripts/make-man.py $(HEADERS) $(MAN3); \
	else echo "man: python3 is not installed, so the library has no manual pages"; fi

# Some shells leave the ~ of PREFIX=~/.local as it is, and kvik.pc would name no directory.
override PREFIX := $(PREFIX:~/%=$(HOME)/%)
# install: to PREFIX=/usr/local, without debug symbols (STRIP=true keeps them)
STRIP ?= strip
# Debian's packages have a directory for each architecture.
LIBDIR ?= $(PREFIX)/lib
INSTALL_BIN = install -m 755 -s --strip-program=$(STRIP)
install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig \
	  $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man3 \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(INSTALL_BIN) kvik $(DESTDIR)$(PREFIX)/bin/kvik
	$(EMULATE) ./kvik completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kvik
	$(EMULATE) ./kvik completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kvik
	$(INSTALL_BIN) libkvik.so $(DESTDIR)$(LIBDIR)/libkvik.so.$(VERSION)
	ln -sf libkvik.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libkvik.so.$(SOVERSION)
	ln -sf libkvik.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libkvik.so
	install -m 644 libkvik.a $(DESTDIR)$(LIBDIR)/libkvik.a
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' -e 's|@VERSION@|$(VERSION)|' -e 's| *@URING@|$(URING:%= %)|' -e 's| *@REDIS@|$(REDIS:%= %)$(TLS:%= %)|' \
	  -e 's|@AUDIO@ *|$(if $(AUDIO),$(shell pkg-config --libs $(AUDIO)) )|' \
	  -e 's|@SHARED@ *|$(if $(REDIS),$(shell pkg-config --libs $(REDIS) $(TLS)) )|' \
	  scripts/kvik.pc.in \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/kvik.pc
	install -m 644 man/kvik.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvik.1
	if [ -f $(MAN3)/kvik.3 ]; then install -m 644 $(MAN3)/*.3 $(DESTDIR)$(PREFIX)/share/man/man3; fi

# These parsers are parts of the server, and need nothing of it.
$(B)/replay_multipart $(B)/fuzz_multipart: $(B)/src/serve/multipart.o
$(B)/replay_head $(B)/fuzz_head: $(B)/src/serve/head.o
$(B)/replay_chunks $(B)/fuzz_chunks: $(B)/src/serve/chunks.o

# libcurl downloads models for kvik pull. Without it (or with CURL= ) the command says what is missing. CURL=load: the command
# links no libcurl, and loads the one of the machine that it runs on.
CURL := $(shell pkg-config --exists libcurl 2>/dev/null && echo libcurl)
CURL_LIBS = $(if $(filter libcurl,$(CURL)),$(shell pkg-config --libs $(CURL)))
$(patsubst %,$(B)/src/hub/%.o,web curl): BASEFLAGS += $(if $(CURL),-DKVIK_CURL $(if $(filter load,$(CURL)),-DKVIK_CURL_LOAD) \
  $(shell pkg-config --cflags libcurl))
EDIT_LIBS ?= -ledit
# The parsers of what the hub sends need nothing of the network.
$(B)/replay_hub $(B)/fuzz_hub: $(patsubst %,$(B)/src/hub/%.o,response choice listing name)

# hiredis and GnuTLS reach shared stores of prefixes. Without them (or with REDIS= or TLS= ) the address says what is missing.
REDIS := $(shell pkg-config --exists hiredis 2>/dev/null && echo hiredis)
TLS := $(if $(REDIS),$(shell pkg-config --exists gnutls 2>/dev/null && echo gnutls))
$(B)/src/shared/redis.o: BASEFLAGS += $(if $(REDIS),-DKVIK_REDIS $(shell pkg-config --cflags $(REDIS)))
$(B)/src/shared/link.o: BASEFLAGS += $(if $(TLS),-DKVIK_TLS $(shell pkg-config --cflags $(TLS)))
LDLIBS += $(if $(REDIS),$(shell pkg-config --libs $(REDIS) $(TLS)))

# libzmq and msgpack publish what the cache holds (kvik serve --kv-events). Without one of them (or with EVENTS= ) the option says so.
EVENTS := $(if $(SERVE),$(shell pkg-config --exists libzmq msgpack 2>/dev/null && echo libzmq msgpack))
EVENTS_LIBS = $(if $(EVENTS),$(shell pkg-config --libs $(EVENTS)))
$(B)/src/serve/events.o: BASEFLAGS += $(if $(EVENTS),-DKVIK_EVENTS $(shell pkg-config --cflags $(EVENTS)))
$(B)/replay_request $(B)/fuzz_request: LDLIBS += $(EVENTS_LIBS)
-include scripts/packages.mk
