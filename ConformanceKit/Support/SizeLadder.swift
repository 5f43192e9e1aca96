#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Sizes next to known limits of interfaces, up to the maximum of the level: pages of lists, parameters of a statement,
/// keys of a request, entries of a batch, bytes of a value, of a column, of a message.
///
/// It includes the size before and the size after each limit, to detect off-by-one errors.
struct SizeLadder: Sendable {
  /// The number of entries in a place, a request or a batch, in ascending order.
  let counts: [Int]
  /// The number of keys in a request with repeated keys, in ascending order, beyond the counts.
  let requests: [Int]
  /// The number of bytes of a value, or of a batch as a whole, in ascending order.
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

  /// The counts just beyond each limit, which detect a limit that is not off by one.
  var ends: [Int] { counts.filter { !counts.contains($0 + 1) } }

  /// The counts for batches of different entries, each of which is read one by one.
  var batches: [Int] { counts.filter { $0 < 1_100 } + ends.filter { $0 >= 1_100 } }

  /// The ladder up to the count at which the sum of all counts exceeds this number of entries, and no higher than the
  /// maximum, but at least up to 26. If it reaches a higher count with only one size for each limit, it has only these.
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

/// How many entries an engine reads, and how many it writes, within seconds. Checks make fewer calls on an engine that
/// makes a remote call for each key, or has a file for each entry.
struct AffordableEntries: Sendable {
  var reads = Int.max
  var writes = Int.max
}

extension CheckContext {
  /// The number of entries that the engine can handle in time, measured with another engine of the same kind.
  ///
  /// - Parameters:
  ///   - seconds: The time limit for reading, and for writing, that many entries. Nil for the time limit of the level.
  ///   - way: The way in which entries are written.
  func affordableEntries(
    within seconds: Double? = nil, by way: WayOfWriting = wayOfBatches
  ) async throws -> AffordableEntries {
    if budget.level == .exhaustive || !isSpeedMeasured { return AffordableEntries() }
    let directory = root.appending(path: "costs-\(enginesLeftOpen.count)", directoryHint: .isDirectory)
    // Opening checks cover that an engine creates missing directories.
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let engine = try await open(directory)
    let keys = keys(50)
    let seconds = seconds ?? (budget.level == .quick ? 0.25 : 4)
    func affordable(_ call: () async throws -> Void) async throws -> Int {
      var best = Duration.seconds(1_000)
      // If calls are slow, the load of the machine hardly affects the measurement.
      for round in 0..<4 where round < 2 || best < .milliseconds(100) {
        best = min(best, try await ContinuousClock().measure { try await call() })
      }
      noteProgress()
      return Int(seconds / max(best.inSeconds / Double(keys.count), 1e-6))
    }
    let writes = try await affordable { try await way.write(engine, entries(keys)) }
    // Uses existing keys, because an engine may know without a lookup that others are absent.
    let reads = try await affordable { _ = try await engine.readDataAndKeys(keys: keys) }
    // Checks of closing cover the errors of close().
    try? await close(engine)
    return AffordableEntries(reads: reads, writes: writes)
  }

  /// This many entries, or as many as the engine reads and writes within seconds if these are fewer, which is then
  /// noted in the report.
  ///
  /// - Parameters:
  ///   - onlyReads: Whether the entries are only read.
  ///   - least: The minimum for any engine.
  ///   - way: The way in which entries are written.
  func affordableCount(
    _ wanted: Int, of what: String, onlyReads: Bool = false, atLeast least: Int = 200,
    by way: WayOfWriting = wayOfBatches
  ) async throws -> Int {
    // The time limit is longer than that of a whole ladder, because syncing a batch takes an engine as long for 50
    // entries as for thousands.
    let affordable = try await affordableEntries(within: 5, by: way)
    let most = onlyReads ? affordable.reads : min(affordable.reads, affordable.writes)
    let count = min(wanted, max(least, most))
    if count < wanted { noteShortfall("\(count) of \(wanted) \(what)") }
    return count
  }

  /// The ladder of the level, up to the size that the engine reaches within seconds.
  ///
  /// - Parameters:
  ///   - filling: Whether the place is filled again for each size, instead of once for all.
  ///   - way: The way in which it is filled.
  func ladder(filling: Bool, by way: WayOfWriting = wayOfBatches) async throws -> SizeLadder {
    let (ladder, affordable) = (SizeLadder(budget.level), try await affordableEntries(by: way))
    return filling
      ? ladder.affordable(min(affordable.reads, affordable.writes))
      : ladder.affordable(affordable.reads, atMost: affordable.writes)
  }
}
