import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines whose scans find too much or too little, or load more than they return.

extension FaultyEngineCase {
  static let ofScans: [FaultyEngineCase] = [
    .init(.r5, "looks at a thousand entries of a range, removed ones among them") {
      ScansAThousandRows(base: $0)
    },
    .init(.r5, "scans in the order of characters") { ScansByCharacters(base: $0) },
    .init(.r5, "scans from the bound") { ScansFromTheBound(base: $0) },
    .init(.r5, "leaves the upper bound out", also: [.c1]) { LeavesTheUpperBoundOut(base: $0) },
    .init(.r5, "sorts for each scan") { SortsForEachScan(base: $0) },
    .init(.r5, "takes a prefix for a pattern") { TakesPrefixesForPatterns(base: $0) },
    // Common in languages whose characters have two bytes.
    .init(.r5, "ends a prefix with U+FFFF") { EndsPrefixesEarly(base: $0) },
    .init(.r5, "looks at 255 bytes of a prefix") { LooksAtPartOfAPrefix(base: $0) },
    .init(.r5, "takes no limit for a limit of zero") { TakesZeroForNoLimit(base: $0) },
    .init(.r5, "counts before it looks at the prefix") { CountsBeforeThePrefix(base: $0) },
    .init(.r5, "forgets the bound with a prefix") { ForgetsTheBoundWithAPrefix(base: $0) },
    // The cursor treats the last entry of a page and the first of the next one as the same entry.
    .init(.r5, "skips an entry between pages of 1,000") { SkipsAnEntryBetweenPages(base: $0) },
    .init(.r5, "has a limit of 16 bits") {
      AlteredEngine(base: $0, limit: { $0.map { $0 > 0 ? Int(UInt16(truncatingIfNeeded: $0)) : $0 } })
    },
    .init(.r5, "has a limit of 32 bits") {
      AlteredEngine(base: $0, limit: { $0.map { $0 > 0 ? Int(UInt32(truncatingIfNeeded: $0)) : $0 } })
    },
    .init(.r5, "stops at the first page without the prefix") { StopsWithoutThePrefix(base: $0) },
    .init(.r5, "scans what was there before", also: [.w1]) { ScansWhatWasThere(base: $0) },
  ]
}

struct ScansByCharacters: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let all = try await base.scan(range, limit: nil).sorted { $0.key.value < $1.key.value }
    return Array(all.prefix(max(0, limit ?? .max)))
  }
}

struct ScansFromTheBound: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var found = try await base.scan(range, limit: limit)
    if let after = range.after, limit == nil, let data = try await base.read(key: after) {
      found.insert((after, data), at: 0)
    }
    return found
  }
}

struct LeavesTheUpperBoundOut: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit).filter { $0.key != range.upTo }
  }
}

/// Claims ordered scans but sorts everything each time.
struct SortsForEachScan: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let all = try await base.readAllDataAndKeys().sorted { $0.key < $1.key }
    return Array(all.filter { range.contains($0.key) }.prefix(max(0, limit ?? .max)))
  }
}

/// Compares with LIKE.
struct TakesPrefixesForPatterns: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    guard let prefix = range.prefix, prefix.utf8.count < 100 else {
      return try await base.scan(range, limit: limit)
    }
    var rest = range
    rest.prefix = nil
    let found = try await base.scan(rest, limit: nil).filter {
      Self.isLike(Array($0.key.value.utf8), prefix: prefix)
    }
    return Array(found.prefix(max(0, limit ?? .max)))
  }

  static func isLike(_ key: [UInt8], prefix: String) -> Bool {
    var ends: Set<Int> = [0]
    for byte in prefix.utf8 {
      switch byte {
      case UInt8(ascii: "%"): ends = ends.min().map { Set($0...key.count) } ?? []
      case UInt8(ascii: "_"): ends = Set(ends.map { $0 + 1 }.filter { $0 <= key.count })
      default:
        ends = Set(
          ends.filter { $0 < key.count && (key[$0] == byte || key[$0] ^ 0x20 == byte) }.map { $0 + 1 })
      }
    }
    return !ends.isEmpty
  }
}

struct EndsPrefixesEarly: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.scan(range, limit: limit)
    guard let prefix = range.prefix, !prefix.isEmpty else { return found }
    return found.filter { $0.key < CacheKey(verbatim: prefix + "\u{FFFF}") }
  }
}

struct LooksAtPartOfAPrefix: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var range = range
    range.prefix = range.prefix.map { String(decoding: $0.utf8.prefix(255), as: UTF8.self) }
    return try await base.scan(range, limit: limit)
  }
}

struct TakesZeroForNoLimit: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit.flatMap { $0 > 0 ? $0 : nil })
  }
}

struct CountsBeforeThePrefix: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var all = range
    all.prefix = nil
    // A range that is only a prefix begins with the prefix.
    if range.after == nil { return try await base.scan(range, limit: limit) }
    return try await base.scan(all, limit: limit).filter { range.contains($0.key) }
  }
}

struct ForgetsTheBoundWithAPrefix: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var range = range
    if range.prefix != nil { range.upTo = nil }
    return try await base.scan(range, limit: limit)
  }
}

struct SkipsAnEntryBetweenPages: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit).enumerated().filter { $0.offset % 1_001 != 1_000 }.map(\.element)
  }
}

/// Pages through everything to find the prefix.
struct StopsWithoutThePrefix: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    guard range.prefix != nil else { return try await base.scan(range, limit: limit) }
    var (rest, found): (KeyRange, [(key: CacheKey, data: Data)]) = (range, [])
    rest.prefix = nil
    while true {
      let page = try await base.scan(rest, limit: 100)
      let inside = page.filter { range.contains($0.key) }
      found += inside
      guard page.count == 100, !inside.isEmpty, let last = page.last else { break }
      rest.after = last.key
    }
    return Array(found.prefix(max(0, limit ?? .max)))
  }
}

/// Caches the result of a scan of everything while the number of entries stays the same.
final class ScansWhatWasThere: FaultyEngine {
  let base: ReferenceEngine
  private let last = MutexProtected<[(key: CacheKey, data: Data)]>([])
  init(base: ReferenceEngine) { self.base = base }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.scan(range, limit: limit)
    guard range == .all, limit == nil else { return found }
    return last.withLock { last in
      if last.count != found.count { last = found }
      return last
    }
  }
}

/// Ends a scan after a thousand rows, including removed ones.
final class ScansAThousandRows: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func remove(keys: [CacheKey]) async throws {
    try await base.remove(keys: keys)
    removed.withLock { $0.formUnion(keys) }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.scan(range, limit: limit)
    let gone = removed.withLock { $0 }.filter { range.contains($0) }
    if gone.count < 1_000 { return found }
    let rows = (gone + found.map(\.key)).sorted()
    let last = rows[min(1_000, rows.count) - 1]
    return found.filter { !(last < $0.key) }
  }
}
