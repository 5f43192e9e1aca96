import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines with batches that are not atomic, or are applied in the wrong order.

extension FaultyEngineCase {
  static let ofBatches: [FaultyEngineCase] = [
    .init(.w4, "writes large batches in portions") { WritesInPortions(base: $0) },
    .init(.w3, "keeps the first of two entries in a batch") { FirstEntryWins(base: $0) },
    .init(.w3, "refuses empty batches") { RefusesEmptyBatches(base: $0) },
    // The parts of a large batch are processed in reverse order.
    .init(.w3, "does the last part of a batch first") { DoesTheLastPartFirst(base: $0) },

    .init(.w4, "validates keys on the way") { ValidatesOnTheWay(base: $0) },
    .init(.w4, "validates keys of removals on the way") { ValidatesRemovalsOnTheWay(base: $0) },
    .init(.w4, "applies up to an invalid key") { AppliesUpToAnInvalidKey(base: $0) },
    .init(.w4, "writes batches in parts") { WritesBatchesInParts(base: $0) },
    .init(.w4, "removes batches in parts") { RemovesBatchesInParts(base: $0) },
    .init(.w4, "distributes batches by what is in braces") { DistributesByBraces(base: $0) },
    .init(.w4, "applies batches in parts") { AppliesBatchesInParts(base: $0) },

    .init(.w4, "removes the keys that it has found before", also: [.c1]) { RemovesWhatItHasFound(base: $0) },

    .init(.w5, "removes before it writes") { RemovesFirst(base: $0) },
    .init(.w5, "removes everything before it does anything") { RemovesEverythingFirst(base: $0) },
    .init(.w5, "does the last operation for each key", also: [.r6, .w2]) { DoesTheLastForEachKey(base: $0) },
    .init(.w5, "stops at removeAll", also: [.w2, .l2, .c4]) {
      StopsAtRemoveAll(base: $0)
    },
  ]
}

struct FirstEntryWins: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    var seen: Set<CacheKey> = []
    try await base.write(dataAndKeys.filter { seen.insert($0.key).inserted })
  }
}

struct RefusesEmptyBatches: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    if keys.isEmpty { throw StorageError(.io, "There is nothing to remove.") }
    try await base.remove(keys: keys)
  }
}

struct DoesTheLastPartFirst: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for start in stride(from: 0, to: dataAndKeys.count, by: 500).reversed() {
      try await base.write(Array(dataAndKeys.dropFirst(start).prefix(500)))
    }
  }
}

/// Validates each key only when it processes it.
struct ValidatesOnTheWay: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if dataAndKeys.allSatisfy({ (1...511).contains($0.key.value.utf8.count) }) {
      return try await base.write(dataAndKeys)
    }
    for (key, data) in dataAndKeys { try await base.write(data, key: key) }
  }
}

struct ValidatesRemovalsOnTheWay: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    if keys.allSatisfy({ (1...511).contains($0.value.utf8.count) }) {
      return try await base.remove(keys: keys)
    }
    for key in keys { try await base.remove(key: key) }
  }
}

struct AppliesUpToAnInvalidKey: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    do {
      try operations.validate()
    } catch {
      for operation in operations { try await base.apply([operation]) }
    }
    try await base.apply(operations)
  }
}

/// Claims atomic batches but writes them entry by entry.
struct WritesBatchesInParts: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    // In a task that is not cancelled, so that each part is written.
    try await Task { [base] in
      for (key, data) in dataAndKeys {
        try await base.write(data, key: key)
        if dataAndKeys.count < 100 { await Task.yield() }
      }
    }.value
  }
}

/// Commits a batch that writes and removes in parts of 128 operations.
struct AppliesMixturesInParts: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    let removals = operations.count { if case .remove = $0 { true } else { false } }
    guard operations.count > 128, removals > 0, removals < operations.count else {
      return try await base.apply(operations)
    }
    try Task.checkCancellation()
    // In a task that is not cancelled, so that each part is applied.
    try await Task { [base] in
      for start in stride(from: 0, to: operations.count, by: 128) {
        try await base.apply(Array(operations[start..<min(start + 128, operations.count)]))
        await Task.yield()
      }
    }.value
  }
}

/// Looks which keys are there, and removes these.
struct RemovesWhatItHasFound: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    let found = try await base.keysExist(keys)
    try await Task.sleep(for: .microseconds(200))
    try await base.remove(keys: found)
  }
}

struct RemovesBatchesInParts: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try await Task { [base] in
      for key in keys {
        try await base.remove(key: key)
        if keys.count < 100 { await Task.yield() }
      }
    }.value
  }
}

struct AppliesBatchesInParts: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await Task { [base] in
      for operation in operations {
        try await base.apply([operation])
        if operations.count < 100 { await Task.yield() }
      }
    }.value
  }
}

/// Like a cluster, distributes entries over two parts by what is in braces in their keys, and commits a batch in one after the other.
struct DistributesByBraces: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    let (tagged, others) = (operations.filter(hasBraces), operations.filter { !hasBraces($0) })
    if tagged.isEmpty || others.isEmpty { return try await base.apply(operations) }
    try await Task { [base] in
      try await base.apply(others)
      await Task.yield()
      try await base.apply(tagged)
    }.value
  }
  private func hasBraces(_ operation: StorageOperation) -> Bool {
    switch operation {
    case .write(_, let key), .remove(let key): key.value.contains("{")
    case .removeAll: false
    }
  }
}

/// Performs the removals of a batch before its writes.
struct RemovesFirst: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    let (removals, writes) = (
      operations.filter { if case .write = $0 { false } else { true } },
      operations.filter { if case .write = $0 { true } else { false } }
    )
    try await base.apply(removals + writes)
  }
}

struct RemovesEverythingFirst: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    let rest = operations.filter { $0 != .removeAll }
    try await base.apply(rest.count < operations.count ? [.removeAll] + rest : rest)
  }
}

/// Processes a batch as a dictionary with one operation for each key.
struct DoesTheLastForEachKey: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    var last: [CacheKey: Int] = [:]
    for (index, operation) in operations.enumerated() {
      switch operation {
      case .write(_, let key), .remove(let key): last[key] = index
      case .removeAll: break
      }
    }
    let chosen = Set(last.values)
    let all: [StorageOperation] = operations.contains(.removeAll) ? [.removeAll] : []
    try await base.apply(all + operations.enumerated().filter { chosen.contains($0.offset) }.map(\.element))
  }
}

struct StopsAtRemoveAll: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    let end = operations.firstIndex(of: .removeAll).map { $0 + 1 } ?? operations.count
    try await base.apply(Array(operations.prefix(end)))
  }
}

/// Writes large batches in several transactions, whose memory is limited.
struct WritesInPortions: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    if dataAndKeys.count <= 4_096 { return try await base.write(dataAndKeys) }
    for start in stride(from: 0, to: dataAndKeys.count, by: 4_096) {
      try await base.write(Array(dataAndKeys[start..<min(start + 4_096, dataAndKeys.count)]))
      await Task.yield()
    }
  }
}
