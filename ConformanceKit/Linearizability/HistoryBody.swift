#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The body of a transaction in a history: it reads, changes, and reads back its changes.
struct HistoryBody: Sendable {
  /// How it reads: one by one, or all keys by one scan.
  enum Look { case read, readMany, keyExists, scan }

  let entries: HistoryEntries
  /// The keys that are read, unless all are.
  let asked: [Int]
  let operations: [HistoryCall.Change]
  let look: Look
  /// Whether the body throws when all is done.
  let throwsAtEnd: Bool

  /// Every key that is read.
  var keys: [Int] { look == .scan ? Array(entries.keys.indices) : asked }

  /// The body. Returns what it has read before it changed anything.
  ///
  /// - Throws: ``RolledBack``, and what the transaction throws.
  func run(_ transaction: any StorageTransaction) throws -> HistoryCall.Answer {
    var answer = try lookAround(transaction)
    for operation in operations { try perform(operation, transaction) }
    if !(try seesOwnChanges(transaction)) { answer = .nonsense }
    guard throwsAtEnd else { return answer }
    switch answer {
    case .found(let values): throw RolledBack(read: .rolledBack(values))
    // Only values can be noted of a body that threw, so that one which has looked for keys returns.
    case .exist: return answer
    default: throw RolledBack(read: answer)
    }
  }

  private func lookAround(_ transaction: any StorageTransaction) throws -> HistoryCall.Answer {
    let asked = asked.map { entries.keys[$0] }
    switch look {
    case .read:
      let found = try asked.compactMap { key in
        try transaction.read(key: key).map { (key: key, data: $0) }
      }
      return entries.answer(found, of: keys)
    case .readMany: return entries.answer(try transaction.read(keys: asked), of: keys)
    case .keyExists: return entries.answer(keys: try asked.filter(transaction.keyExists), of: keys)
    case .scan: return entries.answer(try transaction.scan(.all, limit: nil), of: keys)
    }
  }

  private func perform(_ operation: HistoryCall.Change, _ transaction: any StorageTransaction) throws {
    switch operation {
    case .write(let key, let value):
      try transaction.write(entries.data(of: Cell(key: key, value: value)), key: entries.keys[key])
    case .remove(let key): try transaction.remove(key: entries.keys[key])
    case .removeAll: try transaction.removeAll()
    }
  }

  private func seesOwnChanges(_ transaction: any StorageTransaction) throws -> Bool {
    try operations.allSatisfy { operation in
      switch operation {
      case .write(let key, let value):
        try transaction.read(key: entries.keys[key]) == entries.data(of: Cell(key: key, value: value))
      case .remove(let key): try !transaction.keyExists(entries.keys[key])
      case .removeAll: try transaction.keyCount() == 0
      }
    }
  }
}
