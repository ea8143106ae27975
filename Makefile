# kvik: one Makefile, files found by wildcard.  MODE=release|asan|tsan|fuzz selects build/$(MODE).
MODE ?= release
V ?= 0
PREFIX ?= /usr/local
VERSION := 0.1.0
SOVERSION := 0
B := build/$(MODE)
Q := $(if $(filter 1,$(V)),,@)

CC ?= cc
OBJCOPY ?= objcopy
# io_uring serves the spill file. Without its library (or with URING= ) a few threads serve it.
URING := $(shell pkg-config --exists liburing 2>/dev/null && echo liburing)
# libsndfile and libsoxr read recordings. Without one of them (or with AUDIO= ) kvik transcribe says what is missing.
AUDIO := $(shell pkg-config --exists sndfile soxr zlib 2>/dev/null && echo sndfile soxr zlib)
SERVE := $(shell pkg-config --exists libevent 2>/dev/null && echo libevent)# speaks HTTP for kvik serve
PKGS := jansson libpcre2-8 libutf8proc nettle $(URING) $(AUDIO)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(if $(URING),-DKVIK_URING) $(if $(AUDIO),-DKVIK_AUDIO) $(if $(SERVE),-DKVIK_SERVE)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null || echo -ljansson -lpcre2-8 -lutf8proc -lnettle)
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
ifdef CI
WARN += -Werror
endif
ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
# Level 3 of the checked libc calls is used where the compiler and the C library have it.
FORTIFY := $(shell $(CC) -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -include features.h -x c -E -dM /dev/null 2>/dev/null | \
  grep -q 'FORTIFY_LEVEL 3' && echo 3 || echo 2)
HARDEN := -fstack-protector-strong -fstack-clash-protection $(if $(filter x86_64,$(ARCH)),-fcf-protection)
HARDEN_LD := -Wl,-z,relro,-z,now,-z,noexecstack
# -ffp-contract=off: every fma is written out, so all code paths round alike (docs/ARCHITECTURE.md).
BASEFLAGS := -std=c11 -D_GNU_SOURCE -g -fPIC -pthread -fno-math-errno -ffp-contract=off \
  -fno-strict-aliasing -fvisibility=hidden $(HARDEN) -Iinclude -Isrc $(PKG_CFLAGS)
RELEASE_OPT := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(FORTIFY)
ifeq ($(MODE),asan)
OPT := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
# Instrumented, these files compile for minutes: they are those of the release build, and their tests fence operands.
PLAIN := $(patsubst %.c,%.o,$(wildcard $(patsubst %,src/dev/cpu/%*.c,dot_ strip_ attn_avx coded_avx attn_neon coded_neon)))
else ifeq ($(MODE),tsan)
OPT := -O1 -fno-omit-frame-pointer -fsanitize=thread
else ifeq ($(MODE),fuzz)
CC := clang
OPT := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
# Kernels never see unchecked bytes of a file, and clang takes minutes over instrumented vectors.
$(B)/src/dev/cpu/%.o: OPT := -O1 -fno-omit-frame-pointer
else
OPT := $(RELEASE_OPT)
endif
$(B)/src/dev/cpu/%.o: OPT += -g1 $(if $(filter asan tsan,$(MODE)),-fexpensive-optimizations)# vzeroupper, which -O1 leaves out: without it SSE is slow
$(B)/tests/%.o: OPT += -Og -g1 $(if $(PLAIN),-fno-sanitize=undefined)# tests compile in half the time, and run short
ALLFLAGS = $(BASEFLAGS) $(OPT) $(WARN) $(CFLAGS) -MMD -MP
LDLIBS := $(PKG_LIBS) -lunistring -lm -ldl -pthread # libunistring has no pkg-config file

CLISRC := $(wildcard src/cli/*.c src/hub/*.c src/serve/$(if $(SERVE),*,documents).c)
LIBSRC := $(filter-out src/cli/% src/hub/% src/serve/%,$(wildcard src/*/*.c src/*/*/*.c))
LIBOBJ := $(LIBSRC:%.c=$(B)/%.o)
CLIOBJ := $(CLISRC:%.c=$(B)/%.o)
TESTSRC := $(wildcard tests/unit/test_*.c)
TESTBIN := $(TESTSRC:tests/unit/%.c=$(B)/%)
BENCHBIN := $(patsubst bench/%.c,$(B)/bench_%,$(wildcard bench/*.c))
EXBIN := $(patsubst examples/c/%.c,$(B)/ex_%,$(wildcard examples/c/*.c))
FUZZSRC := $(wildcard tests/fuzz/fuzz_*.c)
REPLAYBIN := $(FUZZSRC:tests/fuzz/fuzz_%.c=$(B)/replay_%)

# ISA siblings: the suffix names the instruction set; dispatch is at run time by cpuid or hwcap.
ISA_x86_64_avx2 := -mavx2 -mfma -mf16c
ISA_x86_64_avx512 := $(ISA_x86_64_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
ISA_x86_64_avx512bf16 := $(ISA_x86_64_avx512) -mavx512bf16
ISA_aarch64_neondot := -march=armv8.2-a+dotprod
ISA_aarch64_neoni8mm := $(ISA_aarch64_neondot)+i8mm
ISA = $(ISA_$(ARCH)_$(lastword $(subst _, ,$(*F))))

.PHONY: all deps demo test test-long test-classes check asan tsan fuzz bench golden matrix install clean libs objects
.DELETE_ON_ERROR:
ifeq ($(MODE),release)# the others leave no files at the root
all: kvik libkvik.so libkvik.a $(if $(shell command -v python3),python/kvik/_abi.py)
else
all: $(B)/kvik
endif

kvik: $(B)/kvik
	$(Q)ln -f $< $@
# The command shares the lowest floor (base) with the library, so it links the object with all names.
$(B)/kvik: $(CLIOBJ) $(B)/kvik.o $(B)/objects
	@echo "  LD    $@"
	$(Q)$(CC) $(OPT) -pie $(HARDEN_LD) $(LDFLAGS) -o $@ $(CLIOBJ) $(B)/kvik.o $(LDLIBS) $(EDIT_LIBS) $(if $(SERVE),-levent) $(CURL_LIBS) $(EVENTS_LIBS)

# This list changes when a source file comes or goes, and what is linked from all files is linked again.
$(B)/objects: objects
	@mkdir -p $(@D) && echo $(LIBOBJ) $(CLIOBJ) | cmp -s - $@ || echo $(LIBOBJ) $(CLIOBJ) >$@
$(B)/kvik.o: $(LIBOBJ) $(B)/objects
	$(Q)$(LD) -r -o $@ $(LIBOBJ)
# One relocatable object: all files are linked in, so their registration sections always are too.  In the archive only
# the public functions are global: a program may define any other name, or link another library that does.
$(B)/archive/kvik.o: $(B)/kvik.o src/api/exports.txt
	@mkdir -p $(@D)
	$(Q)$(OBJCOPY) --keep-global-symbols=src/api/exports.txt $< $@
$(B)/libkvik.a: $(B)/archive/kvik.o
	$(Q)rm -f $@ && $(AR) rcs $@ $<
libkvik.a: $(B)/libkvik.a
	$(Q)ln -f $< $@
libkvik.so: $(B)/libkvik.so
	$(Q)ln -f $< $@ && ln -sf libkvik.so libkvik.so.$(SOVERSION)
$(B)/libkvik.so: $(LIBOBJ) $(B)/objects src/api/libkvik.map
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(OPT) $(HARDEN_LD) $(LDFLAGS) -Wl,-soname,libkvik.so.$(SOVERSION) \
	  -Wl,--version-script=src/api/libkvik.map -o $@ $(LIBOBJ) $(LDLIBS)

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALLFLAGS) $(ISA) -c -o $@ $<
$(B)/src/cli/page.o $(B)/src/serve/front.o: $(wildcard src/*/page/*)# the assembler reads them

ifdef PLAIN
$(PLAIN:%=$(B)/%): $(B)/%.o: build/release/%.o
	@mkdir -p $(@D)
	$(Q)cp -p $< $@
$(PLAIN:%=build/release/%): OPT := $(RELEASE_OPT) -g1
$(PLAIN:%=build/release/%): build/release/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALLFLAGS) $(ISA) -c -o $@ $<
endif

# Unit tests see internal headers and link the static objects, a device (KVIK_DEVICE=hidden) and a codec for tests.
$(B)/test_%: $(B)/tests/unit/test_%.o $(B)/tests/hidden/device.o $(B)/tests/unit/case_filter.o $(B)/tests/codec/codec_shuffle.o $(B)/kvik.o
	$(Q)$(CC) $(OPT) $(TEST_LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka
	$(if $(filter arm,$(MODE)),,@mkdir -p build; ln -sf $(MODE)/test_$* build/test_$*)
$(B)/test_kv: $(patsubst %.c,$(B)/%.o,$(wildcard tests/ref/flat.c tests/ref/kv_model.c tests/ref/model_*.c))
# Tests that go through all codecs are also linked with the codecs in tests/codec.
ALL_CODECS := codec_every codec_kernels cache_config matrix matrix_kv arch_identity budget chaos save
$(ALL_CODECS:%=$(B)/test_%): $(patsubst %.c,$(B)/%.o,$(wildcard tests/codec/*.c))
# What the bench command decides is tested without measuring.
$(B)/test_bench_judge: $(patsubst %,$(B)/src/cli/bench_%.o,judge load found)
FAULTS := memory_faults file_faults power_cuts# let calls of the C library fail
$(FAULTS:%=$(B)/test_%): $(B)/tests/shim/shim.o
$(B)/bench_%: $(B)/bench/%.o $(B)/tests/codec/codec_shuffle.o $(B)/kvik.o
	$(Q)$(CC) $(OPT) -o $@ $^ $(LDLIBS)
# Examples use the public header and the shared library only.
$(B)/ex_%: examples/c/%.c libkvik.so
	$(Q)$(CC) -std=c11 $(OPT) $(WARN) -Iinclude -o $@ $< -L. -lkvik -Wl,-rpath,'$$ORIGIN/../..'
# replay.c drives a fuzz target over its corpus; libFuzzer drives it with MODE=fuzz (clang).
$(B)/replay_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o $(B)/tests/codec/codec_shuffle.o $(B)/kvik.o
	$(Q)$(CC) $(OPT) $(TEST_LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/codec/codec_shuffle.o $(B)/kvik.o
	$(Q)$(CC) $(OPT) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

.SECONDARY:
-include scripts/targets.mk
-include $(shell [ -d build ] && find build -name '*.d' -type f)
