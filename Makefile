# oxinferd - build, run, test. `make help` lists the targets.

B ?= build
CC ?= gcc
CFLAGS ?= -O3 -g
PREFIX ?= /usr/local
SECONDS ?= 60
JOBS := -j$(shell nproc)
MODEL ?= bundled
LISTEN ?= 127.0.0.1:8080

PKGS := libuv libmicrohttpd gnutls libcurl sqlite3 jansson libpcre2-8 libutf8proc sndfile libmpg123 vorbisfile soxr libpng libjpeg libwebp zlib
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
# One meaning of a*b+c everywhere: fused only where fmaf says so (the exactness rule).
STD := -std=c11 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno
ALL_CFLAGS = $(STD) $(WARN) $(CFLAGS) $(SAN) -I. -MMD -MP -pthread $(PKG_CFLAGS)
LIBS = $(PKG_LIBS) -linih -lm -ldl -pthread
CMOCKA := -lcmocka

ARCH := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)
# Files compiled for one instruction set, and only on its architecture.
ISA_x86_64 := $(wildcard kernels/cpu/avx*.c)
ISA_aarch64 := $(wildcard kernels/cpu/neon*.c)
# gcc would otherwise turn the kernels' independent sums into one chain; clang does not, and has no such option.
AVX2 := -mavx2 -mfma -mf16c $(if $(findstring clang,$(CC)),,-fno-tree-reassoc)
# clang needs many minutes for these with checks of undefined behaviour in them.
SLOW := $(if $(findstring clang,$(CC)),-fno-sanitize=undefined)
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
AVX512_BF16 := -mavx512bf16
NEON := $(if $(findstring clang,$(CC)),,-fno-tree-reassoc)
DOTPROD := -march=armv8.2-a+dotprod
I8MM := -march=armv8.2-a+dotprod+i8mm
ISA_FLAGS = $(if $(filter kernels/cpu/avx2%,$<),$(AVX2)) $(if $(filter kernels/cpu/avx512%,$<),$(AVX512)) \
            $(if $(filter kernels/cpu/avx512_bf16%,$<),$(AVX512_BF16)) \
            $(if $(filter kernels/cpu/neon%,$<),$(NEON)) $(if $(filter kernels/cpu/neon_dotprod%,$<),$(DOTPROD)) \
            $(if $(filter kernels/cpu/neon_i8mm%,$<),$(I8MM)) $(if $(findstring _forms_,$<),$(SLOW))

FOLDERS := base kernels gpu codecs config engine server
UNDER_TEST := tests/unit tests/contract
ifdef CORE  # what needs no library but libc, with its tests: for cross compilers
FOLDERS := base kernels
UNDER_TEST := tests/unit/base tests/unit/kernels
PKG_CFLAGS := -Itests/helpers/cross
LIBS := -static -lm -pthread
CMOCKA :=
endif
SRC := $(filter-out $(ISA_x86_64) $(ISA_aarch64),$(shell find $(FOLDERS) -name '*.c')) $(wildcard $(ISA_$(ARCH)))
OBJ := $(SRC:%.c=$(B)/obj/%.o)
LIB := $(B)/liboxinferd.a
TESTS := $(patsubst %.c,$(B)/%,$(shell find $(UNDER_TEST) -name 'test_*.c'))
TEST_HELPERS := $(patsubst %.c,$(B)/obj/%.o,$(if $(CORE),tests/helpers/blocks.c,$(wildcard tests/helpers/*.c)))
FUZZERS := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES := $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/*.c))

# Packages are looked up only when something is compiled, after config/debian.sh has run.
ifndef CORE
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
endif
PKG_LIBS = $(eval PKG_LIBS := $(shell pkg-config --libs $(PKGS)))$(PKG_LIBS)

.PHONY: all help run test test-aarch64 lint asan tsan fuzz bench install clean binaries test-binaries
.DEFAULT_GOAL := all

all:
	@config/debian.sh build
	@$(MAKE) --no-print-directory $(JOBS) binaries

help:
	@echo "make                  build/oxinferd, release build"
	@echo "make run              build and serve the bundled model on $(LISTEN)"
	@echo "make run MODEL=smollm2|PATH"
	@echo "make test             build and run all tests (sets up what they need)"
	@echo "make test-aarch64     kernels and base built for ARM, their tests under qemu"
	@echo "make lint             layers, names, registries, sizes, headers, shell scripts"
	@echo "make asan, make tsan  the tests under AddressSanitizer+UBSan, ThreadSanitizer"
	@echo "make fuzz SECONDS=60  every parser's fuzzer for that long"
	@echo "make bench            the kernels; BENCH_MODELS=\"FILE...\" measures models, beside llama.cpp with PEERS=DIR (bench/README.md)"
	@echo "                      SERVE_MODELS=\"FILE...\": under load, beside llama-server"
	@echo "make install DESTDIR= PREFIX=/usr/local"

binaries: $(B)/oxinferd

$(B)/oxinferd: $(B)/obj/server/main.o $(LIB)
	$(CC) $(SAN) -o $@ $^ $(LIBS)

$(LIB): $(filter-out $(B)/obj/server/main.o,$(OBJ))
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ISA_FLAGS) -c -o $@ $<

$(B)/obj/server/page.o: $(wildcard server/web/*)

# Everything is rebuilt when the compiler or its flags change.
$(B)/flags: FORCE
	@mkdir -p $(B)
	@echo '$(CC) $(STD) $(WARN) $(CFLAGS) $(SAN)' | cmp -s - $@ || echo '$(CC) $(STD) $(WARN) $(CFLAGS) $(SAN)' > $@
FORCE:

run: all
	@server/demo/run.sh $(B)/oxinferd "$(MODEL)" "$(LISTEN)"

# ---- tests
test-binaries: $(TESTS) $(if $(CORE),,$(B)/oxinferd $(B)/bench/load)

$(B)/tests/%: $(B)/obj/tests/%.o $(TEST_HELPERS) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) -o $@ $^ $(CMOCKA) $(LIBS)

test:
	@config/debian.sh test
	@$(MAKE) --no-print-directory $(JOBS) test-binaries
	@tests/run.sh $(B)

# Three machines: all there is, with SDOT, only ARMv8-A. Under emulation the tests take fewer sizes.
ARM_CPUS := max neoverse-n1 cortex-a57
test-aarch64:
	@config/debian.sh aarch64
	@$(MAKE) --no-print-directory $(JOBS) B=build/aarch64 CORE=1 CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar test-binaries
	@$(MAKE) --no-print-directory $(JOBS) --output-sync $(ARM_CPUS:%=test-on-%)

.PHONY: $(ARM_CPUS:%=test-on-%)
$(ARM_CPUS:%=test-on-%): test-on-%:
	@echo "$*:"
	@TEST_SIZES=small RUNNER="qemu-aarch64-static -cpu $*" tests/run.sh build/aarch64

lint: all
	@sh tests/lint/layers.sh
	@sh tests/lint/names.sh $(B)/obj
	@sh tests/lint/registry.sh
	@sh tests/lint/sizes.sh
	@sh tests/lint/headers.sh
	@sh tests/lint/packages.sh $(B)/oxinferd
	@if command -v shellcheck >/dev/null; then shellcheck config/*.sh tests/*.sh tests/fuzz/*.sh bench/*.sh server/demo/*.sh .ci/run; else echo "lint: shellcheck is not installed, scripts not checked"; fi
	@echo "lint: clean"

asan:
	@config/debian.sh test
	@$(MAKE) --no-print-directory $(JOBS) B=build/asan CFLAGS="-O1 -g" SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" test-binaries
	@SANITIZER=asan tests/run.sh build/asan

# Programs without threads, or with no others than the kernels' team, which unit/kernels/test_team and the engine's tests have.
ONE_THREAD := contract/test_(config_keys|images|llama|moe|quantize|qwen35|reference|sdnet|tokenizer_vocabs|types|whisper)|unit/(codecs|engine/(audio|blocks|decide|family|image|text|tokenizer|weights)/|kernels/(cpu/|quant/|test_(conv|mat_parity|mlx_parity|parity|quant_check)))|api/test_(bench|damaged|demo|examples)
tsan:
	@config/debian.sh test
	@$(MAKE) --no-print-directory $(JOBS) B=build/tsan CFLAGS="-O1 -g" SAN="-fsanitize=thread" test-binaries
	@SANITIZER=tsan TSAN_OPTIONS="halt_on_error=1 suppressions=tests/tsan.supp" WITHOUT="$(ONE_THREAD)" tests/run.sh build/tsan

fuzz:
	@config/debian.sh fuzz
	@$(MAKE) --no-print-directory $(JOBS) B=build/fuzz CC=clang CFLAGS="-O1 -g" SAN="-fsanitize=address,undefined,fuzzer-no-link" fuzzers
	@tests/fuzz/run.sh build/fuzz/fuzz $(SECONDS)

.PHONY: fuzzers
fuzzers: $(FUZZERS)
$(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) -fsanitize=fuzzer -o $@ $^ $(LIBS)

bench: all
	@$(MAKE) --no-print-directory $(JOBS) benches
	@bench/run.sh $(B)

.PHONY: benches
benches: $(BENCHES)
$(B)/bench/load: $(patsubst %.c,$(B)/obj/%.o,$(wildcard bench/load/*.c))
$(B)/bench/%: $(B)/obj/bench/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

install: all
	install -Dm755 $(B)/oxinferd $(DESTDIR)$(PREFIX)/bin/oxinferd
	install -Dm644 server/demo/oxinfer-tiny.gguf $(DESTDIR)$(PREFIX)/share/oxinferd/oxinfer-tiny.gguf
	install -Dm644 config/oxinferd.conf $(DESTDIR)$(PREFIX)/share/doc/oxinferd/oxinferd.conf
	install -Dm644 README.md $(DESTDIR)$(PREFIX)/share/doc/oxinferd/README.md
	install -Dm644 server/EXAMPLES.md $(DESTDIR)$(PREFIX)/share/doc/oxinferd/server/EXAMPLES.md
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/|$(PREFIX)/|' systemd/oxinferd.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/oxinferd.service
	install -m644 systemd/oxinferd.socket systemd/oxinferd-admin.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
