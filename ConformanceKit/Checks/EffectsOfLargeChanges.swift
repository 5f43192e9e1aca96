#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// What a batch, an import or a transaction of many entries does besides storing their values: rules K3, L2, R6 and W2.
// An engine may write many entries in another way than few.

/// Fails unless all entries of the place are counted and listed, each once.
func expectListedOnce(_ place: GrowingPlace, _ when: String) async throws {
  try await blaming(.l2, when) {
    try expect(try await place.engine.keyCount(), is: place.count, "keyCount()")
  }
  try await blaming(.k3, when) {
    try expect(try await place.engine.allKeys(), areInAnyOrder: place.keys, "allKeys()")
  }
}

/// Fails unless a transaction has set updatedAt of all entries and createdAt of the new ones, and the entries are in the
/// order of their first writes.
///
/// - Parameters:
///   - old: The entries before the transaction.
///   - written: When it was called and when it returned.
func expectTimesAndOrder(
  of place: GrowingPlace, since old: [StorageEntry], _ written: ClosedRange<Date>
) async throws {
  let when = "after \(wayOfTransactions.name)"
  let created = Dictionary(old.map { ($0.key, $0.createdAt) }) { first, _ in first }
  let found = try await place.engine.readAllEntries()
  try await blaming(.w2, when) {
    for entry in found {
      let isCreatedThen =
        created[entry.key]?.isAbout(entry.createdAt) ?? written.contains(entry.createdAt)
      try expect(
        isCreatedThen && written.contains(entry.updatedAt),
        "readAllEntries() returned the times \(describe([entry.createdAt, entry.updatedAt])) for \(entry.key), which "
          + "are not those of its first and its last write")
    }
  }
  try await blaming(.r6, when) {
    let isExact = place.engine.capabilities.contains(.atomicBatches)
    try expectOrder(of: found, place.keys, isExact: isExact)
  }
}

/// If the engine keeps times: fails unless each of many entries imported from another engine has its times, and existing
/// entries keep their positions.
///
/// - Parameter keys: The existing keys in the order in which they were first written.
func expectTimesOfImport(_ keys: [CacheKey], in engine: EngineUnderTest) async throws {
  guard engine.capabilities.contains(.preservesTimestamps) else { return }
  let past = Date(timeIntervalSince1970: 1_000_000_000)
  // The later in the order, the earlier it was created, according to its times.
  let given = keys.enumerated().map { number, key in
    StorageEntry(
      key: key, data: value(for: key), createdAt: past - Double(number),
      updatedAt: past + Double(number + keys.count))
  }
  let when = "after writeEntries(_:) of \(keys.count) existing entries"
  try await engine.writeEntries(given.reversed())
  let all = try await engine.readAllEntries()
  let found = Dictionary(all.map { ($0.key, $0) }) { first, _ in first }
  for entry in given {
    guard let other = found[entry.key], other.createdAt.isAbout(entry.createdAt),
      other.updatedAt.isAbout(entry.updatedAt)
    else {
      throw Violation("\(when), readAllEntries() returned times for \(entry.key) other than the given ones")
    }
  }
  try await blaming(.r6, when) { try expectOrder(of: all, keys) }
}

/// Assigns violations to a rule.
private func blaming(
  _ rule: ContractRule, _ when: String, _ body: () async throws -> Void
) async throws {
  do {
    try await body()
  } catch let violation as Violation {
    throw Violation("\(when), \(violation)", rule: rule)
  }
}
