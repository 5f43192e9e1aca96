# make demo      notes in the browser that every window shows at once: see Examples/LiveNotes
# make compare   verify and race every engine: the main job
# make peers     measure the engines against the C libraries and against others, and hold them to the limits
# make results   measure everything that RESULTS.md shows, and write it again
# make test      everything CI tests
# make tests     builds what make test runs
# make lint      formatting
# make check-apple  whether every module compiles for Apple's systems, on any system
# make format    puts formatting right
# make docs      documentation of every module as a site in .docs
# make test-exhaustive  every test as long as it is useful, and every faulty engine against every check: no engine fails for a rule it keeps
# make test-layers  every layer in front of every engine, and five stacks of three, against the whole suite: half an hour
# make test-threads   the tests under the thread sanitizer
# make test-peers     the tests of what the engines are measured against

.PHONY: demo compare peers results tests test test-exhaustive test-layers test-threads test-peers lint format check-apple docs libraries test-tools

SOURCES = Package.swift Sources ConformanceKit Benchmarks Tests Examples

# Homebrew's libraries are outside the compiler's own search paths on Apple silicon.
ifeq ($(shell uname -s),Darwin)
BREW := $(shell brew --prefix 2>/dev/null)
export CPATH := $(BREW)/include:$(CPATH)
export LIBRARY_PATH := $(BREW)/lib:$(LIBRARY_PATH)
# Nor does Homebrew put libpq where it puts the others.
export PKG_CONFIG_PATH := $(BREW)/opt/libpq/lib/pkgconfig:$(PKG_CONFIG_PATH)
endif

# Otherwise Swift Testing starts all tests at once, and each of them has files open and gets a thousandth of the time that it
# should take.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH = 16

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

# What is tested is everything, also what a package gets only if it asks for it.
tests test test-exhaustive test-layers test-threads check-apple: export STOCKROOM_ALL_TRAITS = 1

# The examples build into the same folder, where the modules that they use are built already. The plan of a build that is kept there may
# be that of another package, whose tests would be run again instead.
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

# `cached` is not in front of engines that others may open too: what these write is read a moment later there (rules C2, C3, C6).
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
