#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The sizes at which limits of interfaces are known, up to those of the level: pages of lists, parameters of
/// a statement, keys of a request, entries of a batch, bytes of a value, of a column, of a message.
///
/// Around each of them come the size before and the size after, where what is off by one shows.
struct SizeLadder: Sendable {
  /// How many entries are in a place, or in a request, or in a batch; ascending.
  let counts: [Int]
  /// How many keys are in a request for keys that repeat themselves; ascending, and beyond the counts.
  let requests: [Int]
  /// How many bytes a value has, or a batch as a whole; ascending.
  let bytes: [Int]

  init(_ level: ConformanceBudget.Level) {
    let fewest = Self.around(1, 25, 50, 64, 100, 128, 256, 500, 512, 1_000, 1_024)
    let smallest = Self.around(1 << 7, 1 << 14, 1 << 15, 1 << 16, 1 << 20)
    switch level {
    case .quick: (counts, requests, bytes) = (fewest + [4_097], [10_001], smallest)
    case .standard:
      counts = fewest + Self.around(4_096, 10_000)
      requests = Self.around(32_767, 65_536)
      bytes = smallest + Self.around(4 << 20, 10 << 20, 16 << 20)
    case .exhaustive:
      counts =
        fewest + Self.around(2_000, 2_100, 4_096, 5_000, 10_000, 20_000, 32_767, 65_536, 100_000, 250_000)
      requests = [1_000_001]
      bytes =
        Array(smallest.dropLast(3))
        + Self.around(
          400 << 10, 1_000_000, 1 << 20, 4 << 20, 10 << 20, 16 << 20, 64 << 20, 100 << 20, 1 << 27, 256 << 20)
    }
  }

  private init(counts: [Int], requests: [Int], bytes: [Int]) {
    (self.counts, self.requests, self.bytes) = (counts, requests, bytes)
  }

  /// Those of the counts that are just beyond the others: where a limit shows that is not off by one.
  var ends: [Int] { counts.filter { !counts.contains($0 + 1) } }

  /// The counts of batches of different entries: what each of them writes is read one by one.
  var batches: [Int] { counts.filter { $0 < 1_100 } + ends.filter { $0 >= 1_100 } }

  /// The ladder up to where the counts add up to so many entries, and no higher than the most; with fewer rungs if it reaches
  /// higher so.
  func affordable(_ entries: Int, atMost most: Int = .max) -> SizeLadder {
    func affordable(_ counts: [Int]) -> [Int] {
      var sum = 0
      return counts.filter {
        sum += $0
        return $0 <= 26 || (sum <= entries && $0 <= most)
      }
    }
    let (all, some) = (affordable(counts), affordable(ends))
    let counts = (all.last ?? 0) >= (some.last ?? 0) ? all : some
    return SizeLadder(counts: counts, requests: requests.filter { $0 <= entries / 4 }, bytes: bytes)
  }

  private static func around(_ sizes: Int...) -> [Int] {
    Set(sizes.flatMap { [$0 - 1, $0, $0 + 1] }).filter { $0 > 0 }.sorted()
  }
}

/// How many entries an engine reads, and how many it writes, within seconds. To one that makes a call to a remote place of each
/// key, or a file of each entry, fewer questions are put.
struct AffordableEntries: Sendable {
  var reads = Int.max
  var writes = Int.max
}

extension CheckContext {
  /// What the engine can be asked for, as a look at another one of the kind shows.
  ///
  /// - Parameters:
  ///   - seconds: How long the engine may take to read, or to write, what it is asked for. Nil stands for as long as the level has it.
  ///   - way: In which way it writes.
  func affordableEntries(
    within seconds: Double? = nil, by way: WayOfWriting = wayOfBatches
  ) async throws -> AffordableEntries {
    if budget.level == .exhaustive { return AffordableEntries() }
    let directory = root.appending(path: "costs-\(enginesLeftOpen.count)", directoryHint: .isDirectory)
    // That an engine makes what is missing is for checks of opening to see.
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let engine = try await open(directory)
    let keys = keys(50)
    let seconds = seconds ?? (budget.level == .quick ? 0.25 : 4)
    func affordable(_ call: () async throws -> Void) async throws -> Int {
      var best = Duration.seconds(1_000)
      // Of calls that take long, what else the machine does is a small part.
      for round in 0..<4 where round < 2 || best < .milliseconds(100) {
        best = min(best, try await ContinuousClock().measure { try await call() })
      }
      noteProgress()
      return Int(seconds / max(best.inSeconds / Double(keys.count), 1e-6))
    }
    let writes = try await affordable { try await way.write(engine, entries(keys)) }
    // Of keys that are there: that others are absent an engine may know without a look.
    let reads = try await affordable { _ = try await engine.readDataAndKeys(keys: keys) }
    // Checks of closing look at what close() throws.
    try? await close(engine)
    return AffordableEntries(reads: reads, writes: writes)
  }

  /// So many entries, or as many as the engine reads and writes within seconds if these are fewer, which is noted.
  ///
  /// - Parameters:
  ///   - onlyReads: Whether the entries are only asked for.
  ///   - least: How many there are however slow the engine is.
  ///   - way: In which way they are written.
  func affordableCount(
    _ wanted: Int, of what: String, onlyReads: Bool = false, atLeast least: Int = 200,
    by way: WayOfWriting = wayOfBatches
  ) async throws -> Int {
    // Longer than what a ladder may take for all of its rungs: to sync a batch takes an engine as long for 50 entries as for
    // thousands.
    let affordable = try await affordableEntries(within: 5, by: way)
    let most = onlyReads ? affordable.reads : min(affordable.reads, affordable.writes)
    let count = min(wanted, max(least, most))
    if count < wanted { noteShortfall("\(count) of \(wanted) \(what)") }
    return count
  }

  /// The ladder of the level, as far as the engine climbs it within seconds.
  ///
  /// - Parameters:
  ///   - filling: Whether the place is filled for each rung, and not once for all.
  ///   - way: In which way it is filled.
  func ladder(filling: Bool, by way: WayOfWriting = wayOfBatches) async throws -> SizeLadder {
    let (ladder, affordable) = (SizeLadder(budget.level), try await affordableEntries(by: way))
    return filling
      ? ladder.affordable(min(affordable.reads, affordable.writes))
      : ladder.affordable(affordable.reads, atMost: affordable.writes)
  }
}
