#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Bodies that count, list or scan while others change something: rule T1. An engine may validate only a part of what
// such a read has returned.

extension CheckDefinition {
  @CheckList static var bodyListChecks: [CheckDefinition] {
    Check(
      .t1, "transactions.lists-beside-changes",
      "a body that counts, lists or scans has found a change by any other call that was acknowledged before anything "
        + "of the body could be read",
      needs: .transactions
    ) { try await checkListsOfBodies($0) }
  }
}

/// A read of a body that depends on several keys, and its result for given contents. Both results are texts.
private struct Listing: Sendable {
  let name: String
  let read: @Sendable (any StorageTransaction) throws -> String
  let expected: @Sendable ([CacheKey: Data]) -> String

  static let all: [Listing] = [
    Listing(name: "keyCount()", read: { "\(try $0.keyCount())" }, expected: { "\($0.count)" }),
    Listing(
      name: "allKeys()", read: { names(try $0.allKeys()) }, expected: { names(Array($0.keys)) }),
    scan("scan of a prefix", .prefix("seat/")),
    scan("scan between two keys", KeyRange(after: key("seat"), upTo: key("seat0"))),
    scan("scan up to one entry", .prefix("seat/"), limit: 1),
  ]

  private static func scan(_ name: String, _ range: KeyRange, limit: Int? = nil) -> Listing {
    Listing(name: name) { transaction in
      texts(try transaction.scan(range, limit: limit))
    } expected: { contents in
      let found = contents.filter { range.contains($0.key) }.sorted { $0.key < $1.key }
      return texts(found.prefix(limit ?? .max).map { ($0.key, $0.value) })
    }
  }

  private static func names(_ keys: [CacheKey]) -> String {
    keys.sorted().map(\.value).joined(separator: ", ")
  }

  private static func texts(_ entries: [(key: CacheKey, data: Data)]) -> String {
    entries.map { "\($0.key.value): \(String(decoding: $0.data, as: UTF8.self))" }.joined(separator: ", ")
  }
}

/// A call that changes what such reads find.
private struct ListedChange: Sendable {
  let name: String
  let operations: [StorageOperation]
  let method: ChangeMethod

  /// An existing key between two absent ones, and an existing key that no scan finds.
  static let (taken, outside) = (key("seat/3"), key("other"))
  private static let (before, behind) = (key("seat/1"), key("seat/5"))

  static func all(_ capabilities: EngineCapabilities) -> [ListedChange] {
    // A limited scan must also notice what comes before the entry that it has found.
    let byMethods = ChangeMethod.all(capabilities).map { method in
      let operation: StorageOperation =
        switch method {
        case .removeAll: .removeAll
        case .remove, .removeMany: .remove(key: taken)
        default: .write(data("new"), key: before)
        }
      return ListedChange(name: method.call, operations: [operation], method: method)
    }
    return byMethods + [
      .init(
        name: "a batch that removes one entry and adds another",
        operations: [.remove(key: taken), .write(data("new"), key: behind)], method: .apply),
      .init(
        name: "a batch that adds an entry to a scan and removes one elsewhere",
        operations: [.remove(key: outside), .write(data("new"), key: behind)], method: .apply),
      .init(
        name: "a write behind all others", operations: [.write(data("new"), key: behind)], method: .write),
      .init(name: "an overwrite", operations: [.write(data("other"), key: taken)], method: .write),
    ]
  }
}

private func checkListsOfBodies(_ context: CheckContext) async throws {
  let engines = try await context.openTwiceIfPossible()
  let changes = ListedChange.all(context.capabilities)
  for (number, change) in changes.enumerated() {
    // An engine that runs one body at a time takes 50 ms for each of them.
    let isQuick = context.budget.level == .quick
    let listings = isQuick ? [Listing.all[number % Listing.all.count]] : Listing.all
    for writer in isQuick ? [engines[number % engines.count]] : engines {
      for listing in listings {
        context.noteProgress()
        try await change.perform(beside: listing, engines[0], by: writer)
      }
    }
  }
}

extension ListedChange {
  /// Has a body write the result of its read, and another call change what the read covers meanwhile. If no write of
  /// the body can be read when that call has returned, the transaction comes after the call, and the result must
  /// include the change.
  fileprivate func perform(
    beside listing: Listing, _ engine: EngineUnderTest, by writer: EngineUnderTest
  ) async throws {
    let mark = key("found by a body")
    var contents = [Self.taken: data("old"), Self.outside: data("old")]
    try await engine.removeAllData()
    try await engine.write(contents.map { ($0.key, $0.value) })
    let isAfterCall = try await engine.withTransaction {
      try listing.read($0)
    } meanwhile: {
      try await writer.perform(operations, by: method)
      return try await engine.read(key: mark) == nil
    } then: { transaction, found in
      try transaction.write(data(found), key: mark)
    }
    guard isAfterCall else { return }
    for operation in operations { operation.apply(to: &contents) }
    let (found, expected) = (try await engine.read(key: mark), listing.expected(contents))
    // removeAllData() may have removed the mark.
    if found == data(expected) || found == nil && method == .removeAll { return }
    throw Violation(
      "a body wrote \(found.map { "\"\(String(decoding: $0, as: UTF8.self))\"" } ?? "nothing") as the result of its "
        + "\(listing.name) instead of \"\(expected)\", although \(name) had returned before anything of the body "
        + "could be read")
  }
}
