#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// An engine whose number of entries grows with each size of a ladder.
struct GrowingPlace: Sendable {
  let engine: EngineUnderTest
  /// The existing keys in the order in which they were first written, which differs from the order of bytes.
  private(set) var keys: [CacheKey] = []
  private var version = 1
  /// The number of batches that have added entries.
  private var batches = 0

  /// - Parameter place: A place from which the new one takes over the position in the rotation of methods, so that both
  ///   write their next entries by the same method.
  init(_ engine: EngineUnderTest, like place: GrowingPlace? = nil) {
    self.engine = engine
    batches = place?.batches ?? 0
  }

  var count: Int { keys.count }
  /// The entries in the order in which they were first written.
  var entries: [(key: CacheKey, data: Data)] { ConformanceKit.entries(keys, version: version) }
  /// The entries in the order of the bytes of their keys.
  var sortedEntries: [(key: CacheKey, data: Data)] {
    ConformanceKit.entries(keys.inByteOrder(), version: version)
  }

  /// One of 999,983 keys whose order of bytes differs from that of their numbers.
  static func key(_ number: Int) -> CacheKey {
    let digits = String(number * 77_773 % 999_983)
    return ConformanceKit.key("key-" + String(repeating: "0", count: 6 - digits.count) + digits)
  }

  /// A key that is always absent, for each number.
  static func absentKey(_ number: Int) -> CacheKey { ConformanceKit.key("key-\(number) absent") }

  /// Writes new entries until there are this many: one or two with single writes, more with `write(_:)`, `apply(_:)`
  /// and `writeEntries(_:)` in turn.
  mutating func grow(to count: Int) async throws {
    let new = (keys.count..<max(count, keys.count)).map(Self.key)
    let entries = ConformanceKit.entries(new, version: version)
    if new.count <= 2 {
      for entry in entries { try await engine.write(entry.data, key: entry.key) }
    } else {
      let ways = [wayOfBatches, wayOfApplying, wayOfImporting]
      try await ways[batches % ways.count].write(engine, entries)
      // Only batches are counted, so that each method follows the previous one.
      batches += 1
    }
    keys += new
  }

  /// Writes a new value for every entry and adds the missing entries, in one batch.
  mutating func overwrite(
    to count: Int, by write: (EngineUnderTest, [(key: CacheKey, data: Data)]) async throws -> Void
  ) async throws {
    let all = (0..<count).map(Self.key)
    try await write(engine, ConformanceKit.entries(all, version: version + 1))
    version += 1
    keys = all
  }

  /// How often a check changes all entries. In a new place it does so twice, so that existing entries are overwritten
  /// there as well: the search for the smallest failing size uses new places.
  var rounds: Range<Int> { 0..<(keys.isEmpty ? 2 : 1) }

  /// Fails, by rule W1, unless `read(key:)` returns what was written: other methods are not at fault for entries that
  /// are missing.
  fileprivate func expectWritten() async throws {
    do {
      try await expectStored(entries, in: engine)
    } catch let violation as Violation {
      throw Violation(violation.description, rule: .w1)
    }
  }
}

/// What a check of one size does with the place.
enum SizeCheckKind {
  /// Reads a place with this many entries. If an entry is missing there, the write is at fault.
  case reads
  /// Changes a place with this many entries.
  case changes
  /// Writes this many entries itself.
  case fills
}

extension CheckContext {
  /// A check of a place at one size. It throws if a result is wrong.
  typealias SizeCheck = @Sendable (inout GrowingPlace, Int) async throws -> Void

  /// Grows one place from size to size and runs the check at each. After a failure, searches for the smallest failing
  /// size in new places. Notes if the engine cannot reach all sizes of the ladder within seconds.
  ///
  /// - Parameters:
  ///   - chosen: The sizes to check. Nil stands for all counts of the ladder.
  ///   - kind: What the check does.
  ///   - way: The way in which the check writes.
  func checkSizes(
    _ chosen: (@Sendable (SizeLadder) -> [Int])? = nil, _ kind: SizeCheckKind = .reads,
    by way: WayOfWriting = wayOfBatches, checking check: SizeCheck
  ) async throws {
    let directory = root.appending(path: "ladder-\(enginesLeftOpen.count)", directoryHint: .isDirectory)
    let engine = try await open(directory)
    let (whole, ladder) = (SizeLadder(budget.level), try await ladder(filling: kind == .fills, by: way))
    let (wanted, sizes) = (chosen?(whole) ?? whole.counts, chosen?(ladder) ?? ladder.counts)
    let (most, last) = (wanted.last ?? 0, sizes.last ?? 0)
    if last < most { noteShortfall("\(last) of \(most) entries") }
    var place = GrowingPlace(engine)
    var reached = 0
    for size in sizes {
      let before = place
      guard let violation = try await answer(&place, at: size, kind, check) else {
        reached = size
        continue
      }
      throw try await smallest(
        violation, between: reached, and: size, like: before, kind, check)
    }
  }

  /// The violation at this size; nil if there is none.
  private func answer(
    _ place: inout GrowingPlace, at size: Int, _ kind: SizeCheckKind, _ check: SizeCheck
  ) async throws -> Violation? {
    defer { noteProgress() }
    do {
      if kind != .fills { try await place.grow(to: size) }
    } catch let failure as CallFailure {
      return Violation("\(failure)", rule: .w1)
    }
    var violation: Violation
    do {
      var checked = place
      try await check(&checked, size)
      place = checked
      return nil
    } catch let found as Violation {
      violation = found
    } catch let failure as CallFailure {
      violation = Violation("\(failure)")
    }
    if kind == .reads {
      do { try await place.expectWritten() } catch let lost as Violation { violation = lost }
    }
    return violation
  }

  /// The violation at the smallest failing size, which is greater than the first size and at most the second.
  private func smallest(
    _ violation: Violation, between reached: Int, and size: Int, like place: GrowingPlace,
    _ kind: SizeCheckKind, _ check: SizeCheck
  ) async throws -> Violation {
    var (low, high, violation) = (reached, size, violation)
    while high - low > 1 {
      let middle = low + (high - low) / 2
      let directory = root.appending(path: "size-\(middle)", directoryHint: .isDirectory)
      var fresh = GrowingPlace(try await open(directory), like: place)
      if let found = try await answer(&fresh, at: middle, kind, check) {
        (high, violation) = (middle, found)
      } else {
        low = middle
      }
      try await close(fresh.engine)
    }
    let good = low == 0 ? "" : "no failure with \(low); "
    return Violation("\(good)with \(high) \(violation)", rule: violation.rule)
  }
}
