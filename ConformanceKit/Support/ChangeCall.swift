#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// One call of each kind of change, in this process or in another one.
struct ChangeCall: Codable, Sendable {
  enum Kind: String, Codable, Sendable, CaseIterable {
    case write, overwrite, writeMany, remove, removeMany, removeAll, apply, transaction
    case applyRemoveAll, transactionRemoveAll, writeEntries
    /// A transaction that imports entries.
    case transactionWriteEntry
    /// A batch that overwrites entries with the same values.
    case overwriteMany
    /// A batch that removes an entry and writes it again with the same value.
    case replace
    /// One batch overwrites an entry and removes it.
    case writeAndRemove
    /// A write with an origin, for subscribers without one.
    case writeWithOrigin
    /// A batch and transactions that write nothing.
    case applyRemovals, transactionRemovals, transactionOfRemoveAll

    var name: String {
      switch self {
      case .write: "write"
      case .overwrite: "overwrite"
      case .writeMany: "write-many"
      case .remove: "remove"
      case .removeMany: "remove-many"
      case .removeAll: "remove-all"
      case .apply: "apply"
      case .transaction: "transaction"
      case .applyRemoveAll: "apply-remove-all"
      case .transactionRemoveAll: "transaction-remove-all"
      case .writeEntries: "write-entries"
      case .transactionWriteEntry: "transaction-write-entry"
      case .overwriteMany: "overwrite-many"
      case .replace: "replace"
      case .writeAndRemove: "write-and-remove"
      case .writeWithOrigin: "write-with-origin"
      case .applyRemovals: "apply-removals"
      case .transactionRemovals: "transaction-removals"
      case .transactionOfRemoveAll: "transaction-of-remove-all"
      }
    }

    var needs: EngineCapabilities {
      switch self {
      case .transaction, .transactionRemoveAll, .transactionWriteEntry, .transactionRemovals,
        .transactionOfRemoveAll:
        .transactions
      default: []
      }
    }

    /// The kinds for an engine with these capabilities.
    static func all(_ capabilities: EngineCapabilities) -> [Kind] {
      allCases.filter { capabilities.isSuperset(of: $0.needs) }
    }
  }

  let kind: Kind
  /// The prefix of all keys.
  let prefix: String

  private var keys: [CacheKey] { ConformanceKit.keys(3, prefix: prefix) }

  /// The keys that the call changes, except one that is absent before and after.
  var changed: [CacheKey] {
    switch kind {
    case .write, .writeWithOrigin: [keys[2]]
    case .overwrite, .remove, .replace, .writeAndRemove: [keys[0]]
    case .overwriteMany, .removeMany, .removeAll, .applyRemoveAll, .transactionRemoveAll, .applyRemovals,
      .transactionRemovals, .transactionOfRemoveAll:
      Array(keys[0...1])
    case .writeMany, .writeEntries, .transactionWriteEntry, .apply, .transaction: keys
    }
  }

  /// The name of the call in sentences.
  var description: String { "a call of the kind \(kind.name) on \(describe(changed))" }

  /// Writes the entries that the call removes or overwrites.
  func prepare(_ engine: EngineUnderTest) async throws { try await engine.write(entries(Array(keys[0...1]))) }

  func perform(on engine: EngineUnderTest) async throws {
    let keys = keys
    switch kind {
    case .write: try await engine.write(value(for: keys[2]), key: keys[2])
    case .overwrite: try await engine.write(value(for: keys[0]), key: keys[0])
    case .writeMany: try await engine.write(entries(keys, version: 2))
    case .writeEntries: try await engine.writeEntries(past(keys))
    case .transactionWriteEntry:
      try await engine.withTransaction { transaction in
        for entry in past(keys) { try transaction.writeEntry(entry) }
      }
    case .overwriteMany: try await engine.write(entries(Array(keys[0...1])))
    case .replace: try await engine.apply([.remove(key: keys[0]), .write(value(for: keys[0]), key: keys[0])])
    case .writeAndRemove: try await engine.apply([.write(data("v"), key: keys[0]), .remove(key: keys[0])])
    case .writeWithOrigin:
      try await ChangeOrigin.$current.withValue(ChangeOrigin()) {
        try await engine.write(data("v"), key: keys[2])
      }
    case .remove: try await engine.remove(key: keys[0])
    case .removeMany: try await engine.remove(keys: keys)
    case .removeAll: try await engine.removeAllData()
    case .apply:
      try await engine.apply([.write(data("v"), key: keys[2]), .remove(key: keys[0]), .remove(key: keys[1])])
    case .transaction:
      try await engine.withTransaction { transaction in
        try transaction.write(data("v"), key: keys[2])
        try transaction.remove(key: keys[0])
        try transaction.remove(key: keys[1])
      }
    case .applyRemoveAll:
      try await engine.apply([.write(data("v"), key: keys[2]), .removeAll, .write(data("v"), key: keys[0])])
    case .transactionRemoveAll:
      try await engine.withTransaction { transaction in
        try transaction.removeAll()
        try transaction.write(data("v"), key: keys[0])
      }
    case .applyRemovals: try await engine.apply(keys.map { .remove(key: $0) })
    case .transactionRemovals:
      try await engine.withTransaction { transaction in
        for key in keys { try transaction.remove(key: key) }
      }
    case .transactionOfRemoveAll: try await engine.withTransaction { try $0.removeAll() }
    }
  }

  /// Imported entries with times in the past. A query for recently updated entries does not find them.
  private func past(_ keys: [CacheKey]) -> [StorageEntry] {
    let past = Date(timeIntervalSince1970: 1_500_000_000)
    return entries(keys, version: 2).map {
      StorageEntry(key: $0.key, data: $0.data, createdAt: past, updatedAt: past)
    }
  }

  /// Fails unless the subscriber receives elements that cover the call.
  func expectCovered(by subscriber: ChangeSubscriber, _ whose: String = "") async throws {
    try await subscriber.expectCovered(changed, "\(description)\(whose)")
  }

  /// Fails unless two writes after the call are covered for a subscriber from before it. The engine may watch files that
  /// the call has replaced.
  ///
  /// An element for the call that the subscriber has not received yet may stand for everything, and so cover the first
  /// write. It cannot cover the second.
  func expectTwoMoreCovered(
    by subscriber: ChangeSubscriber, _ whose: String, writing write: (CacheKey) async throws -> Void
  ) async throws {
    for written in ConformanceKit.keys(2, prefix: "after \(prefix)") {
      try await write(written)
      try await subscriber.expectCovered(
        [written],
        "a write by \(whose) after its call of the kind \(kind.name), for a subscriber from before that call")
    }
  }
}
