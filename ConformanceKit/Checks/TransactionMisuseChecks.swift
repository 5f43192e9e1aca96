#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Misuse of transactions: rules T4 and K1.

private let callsOfTransactions: [(String, @Sendable (any StorageTransaction, CacheKey) throws -> Void)] = [
  ("write(_:key:)", { try $0.write(data("late"), key: $1) }),
  (
    "writeEntry(_:)",
    { try $0.writeEntry(StorageEntry(key: $1, data: data("late"), createdAt: Date(), updatedAt: Date())) }
  ),
  ("remove(key:)", { try $0.remove(key: $1) }),
  ("read(key:)", { _ = try $0.read(key: $1) }),
  ("read(keys:)", { _ = try $0.read(keys: [key("k"), $1]) }),
  ("keyExists(_:)", { _ = try $0.keyExists($1) }),
  ("scan(_:limit:)", { _ = try $0.scan(KeyRange(after: $1, upTo: nil), limit: 1) }),
  ("scan(_:limit:) up to it", { _ = try $0.scan(KeyRange(after: nil, upTo: $1), limit: 1) }),
  ("scan(_:limit:) behind another", { _ = try $0.scan(KeyRange(after: key("z"), upTo: $1), limit: nil) }),
  ("scan(_:limit:) of no entries", { _ = try $0.scan(KeyRange(after: nil, upTo: $1), limit: 0) }),
]

private let callsWithoutKeys: [(String, @Sendable (any StorageTransaction) throws -> Void)] = [
  ("removeAll()", { try $0.removeAll() }),
  ("keyCount()", { _ = try $0.keyCount() }),
  ("allKeys()", { _ = try $0.allKeys() }),
]

// MARK: - After the end

/// Keeps a transaction beyond its body, which is not allowed.
private final class TransactionHolder: @unchecked Sendable {
  // Safe to share: written by the body, and read after withTransaction(_:) has returned, by one body at a time.
  var transaction: (any StorageTransaction)?
}

func checkLateUseOfTransactions(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await engine.write(data("v"), key: key("k"))
  for throwsInstead in [false, true] {
    let holder = TransactionHolder()
    let end = throwsInstead ? "thrown" : "returned"
    do {
      try await engine.withTransaction { transaction in
        holder.transaction = transaction
        if throwsInstead { throw ThrownByBody() }
      }
    } catch let failure as CallFailure where failure.error is ThrownByBody {}
    guard let transaction = holder.transaction else { throw Violation("the body had not been run") }
    for (name, call) in callsOfTransactions {
      try expectRefused(name, end) { try call(transaction, key("k")) }
    }
    for (name, call) in callsWithoutKeys { try expectRefused(name, end) { try call(transaction) } }
    // The body of another transaction must not receive its changes either.
    try await engine.withTransaction { _ in
      guard let transaction = holder.transaction else { return }
      for (name, call) in callsOfTransactions {
        try expectRefused("\(name), called while another body ran,", end) { try call(transaction, key("k")) }
      }
      for (name, call) in callsWithoutKeys {
        try expectRefused("\(name), called while another body ran,", end) { try call(transaction) }
      }
    }
    try await expectStored([(key("k"), data("v"))], in: engine)
    try expect(try await engine.keyCount(), is: 1, "keyCount() after a transaction was used too late")
  }
}

private func expectRefused(_ name: String, _ end: String, _ call: () throws -> Void) throws {
  do {
    try call()
  } catch is StorageError {
    return
  } catch {
    throw Violation("\(name) threw \(error), which is not a StorageError, after the body had \(end)")
  }
  throw Violation("\(name) did not throw after the body had \(end)")
}

// MARK: - Invalid keys

func checkInvalidKeysInTransactions(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await engine.write(data("v"), key: key("k"))
  let invalid = ["", String(repeating: "x", count: 512), String(repeating: "é", count: 256)].map { key($0) }
  try await engine.withTransaction { transaction in
    try transaction.write(data("before"), key: key("before"))
    for key in invalid {
      for (name, call) in callsOfTransactions {
        do {
          try call(transaction, key)
          throw Violation("\(name) of a transaction accepted a key of \(key.value.utf8.count) bytes")
        } catch let error as StorageError {
          guard error.code == .invalidKey else {
            throw Violation(
              "\(name) of a transaction threw \(error) for a key of \(key.value.utf8.count) bytes")
          }
        }
        let (count, found) = (try transaction.keyCount(), try transaction.allKeys().count)
        try expect(
          count == 2 && found == 2,
          "after \(name) of a transaction had thrown for a key, keyCount() was \(count) and allKeys() had "
            + "\(found) of 2 keys"
        )
      }
    }
    try transaction.write(data("after"), key: key("after"))
  }
  try await expectStored(
    [(key("k"), data("v")), (key("before"), data("before")), (key("after"), data("after"))], in: engine)
  try expect(try await engine.keyCount(), is: 3, "keyCount() after a transaction with invalid keys")
}
