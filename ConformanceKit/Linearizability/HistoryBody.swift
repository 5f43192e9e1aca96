#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The body of a transaction in a history: it reads, makes changes, and reads them back.
struct HistoryBody: Sendable {
  /// How the body reads: single keys, several keys, or all by one scan.
  enum ReadKind { case read, readMany, keyExists, scan }

  let entries: HistoryEntries
  /// The keys that are read, except for a scan, which reads all.
  let asked: [Int]
  let operations: [HistoryCall.Change]
  let look: ReadKind
  /// Whether the body throws at its end.
  let throwsAtEnd: Bool

  /// Every key that is read.
  var keys: [Int] { look == .scan ? Array(entries.keys.indices) : asked }

  /// Runs the body. Returns what it read before its changes.
  ///
  /// - Throws: ``RolledBack``, and the errors of the transaction.
  func run(_ transaction: any StorageTransaction) throws -> HistoryCall.Answer {
    var answer = try readAsked(transaction)
    for operation in operations { try perform(operation, transaction) }
    if !(try seesOwnChanges(transaction)) { answer = .nonsense }
    guard throwsAtEnd else { return answer }
    switch answer {
    case .found(let values): throw RolledBack(read: .rolledBack(values))
    // A body that throws can only report values, so this one returns.
    case .exist: return answer
    default: throw RolledBack(read: answer)
    }
  }

  private func readAsked(_ transaction: any StorageTransaction) throws -> HistoryCall.Answer {
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
