# make demo             starts LiveNotes, notes in the browser: see Examples/LiveNotes
# make compare          checks every engine, then compares their speeds
# make peers            compares the engines with the C libraries, plain files and GRDB, and checks limits
# make results          measures and rewrites RESULTS.md
# make test             tests what CI tests
# make tests            builds what make test runs
# make lint             checks the formatting
# make format           corrects the formatting
# make check-apple      compiles every module for Apple's systems, on any system
# make docs             builds the documentation of every module as a site in .docs
# make test-exhaustive  runs longer loops in every test, and every faulty engine against every check: it must fail none of a rule that it
#                       follows
# make test-layers      runs the checks of the level quick on every layer in front of every engine, and on stacks of layers: half an hour
# make test-threads     runs the tests with the thread sanitizer
# make test-peers       runs the tests of the programs that the engines are compared with

.PHONY: demo compare peers results tests test test-exhaustive test-layers test-threads test-peers lint format check-apple docs libraries test-tools

SOURCES = Package.swift Sources ConformanceKit Benchmarks Tests Examples

# Homebrew's libraries are outside the compiler's own search paths on Apple silicon.
ifeq ($(shell uname -s),Darwin)
BREW := $(shell brew --prefix 2>/dev/null)
export CPATH := $(BREW)/include:$(CPATH)
export LIBRARY_PATH := $(BREW)/lib:$(LIBRARY_PATH)
# Homebrew does not link libpq into the directory of the other libraries.
export PKG_CONFIG_PATH := $(BREW)/opt/libpq/lib/pkgconfig:$(PKG_CONFIG_PATH)
endif

# Otherwise Swift Testing starts all tests at once: too many files would be open, and each test would get too little processor time.
# With fewer, two processors are idle for a third of the time, since many tests wait: for servers, processes, and what must not happen.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH = 24

# Options for building what `make test` and `make check-apple` need, as CI has them.
SWIFT_FLAGS ?=

demo: libraries
	swift run $(EXAMPLE)/LiveNotes LiveNotes

compare: libraries
	swift run -c release stockroom compare

peers: libraries
	swift run -c release --package-path Benchmarks/Peers peers

results: libraries
	swift run -c release stockroom bench --workload calls --workload ycsb --workload headline --entries 2000 \
		--write-results RESULTS.md

# Tests include the code of all traits.
tests test test-exhaustive test-layers test-threads check-apple: export STOCKROOM_ALL_TRAITS = 1

# The examples are built in the same folder, which contains the modules that they use. The cached build plan in it may be that of
# another package, whose tests would be run instead.
PLANNED = --disable-build-manifest-caching
EXAMPLE = $(PLANNED) --scratch-path .build --package-path Examples

# Traits become arguments of the compiler in an order that differs from run to run unless hashing is deterministic, and with another order
# everything is built again. The tests themselves run without it.
BUILD = SWIFT_DETERMINISTIC_HASHING=1 swift build $(SWIFT_FLAGS)
BUILD_TESTS = $(BUILD) --build-tests
RUN_TESTS = swift test --skip-build $(SWIFT_FLAGS)

test: tests
	$(RUN_TESTS) $(PLANNED)
	$(BUILD_TESTS) $(EXAMPLE)/CustomEngine
	$(RUN_TESTS) $(EXAMPLE)/CustomEngine
	$(BUILD_TESTS) $(EXAMPLE)/LiveNotes
	$(RUN_TESTS) $(EXAMPLE)/LiveNotes

tests: libraries test-tools
	$(BUILD_TESTS) $(PLANNED)

test-exhaustive: tests
	STOCKROOM_EXHAUSTIVE_TESTS=1 $(RUN_TESTS) $(PLANNED)

# `cached` is tested in front of Memory only: in front of an engine whose place others can open, it returns their writes a moment later,
# against rules C2, C3 and C6.
LAYERS = compressed namespaced checksummed inventory expiring instrumented encrypted hidden
LAYERED = $(foreach engine,memory files sqlite lmdb leveldb,$(foreach layer,$(LAYERS),$(engine)+$(layer))) memory+cached \
	sqlite+encrypted+compressed+instrumented lmdb+namespaced+encrypted+compressed leveldb+inventory+expiring+compressed \
	files+checksummed+namespaced+expiring memory+hidden+compressed+cached

test-layers: libraries test-tools
	swift run -c release stockroom conformance --level quick $(LAYERED:%=--engine %)

test-threads: libraries test-tools
	$(BUILD_TESTS) $(PLANNED) --sanitize thread
	$(RUN_TESTS) $(PLANNED) --sanitize thread

test-peers: libraries
	swift test -c release --package-path Benchmarks/Peers

lint:
	swift format lint --strict --parallel --recursive $(SOURCES)

format:
	swift format --in-place --parallel --recursive $(SOURCES)

check-apple: libraries
	$(BUILD)
	Scripts/check-apple

docs: libraries
	Scripts/make-docs .docs

libraries:
	@Scripts/install-libraries

test-tools:
	@Scripts/install-test-tools
