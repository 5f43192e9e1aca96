import StockroomCore

/// Which calls a kind of sequence consists of, and how often each of them.
struct CommandProfile: Sendable {
  enum Call: Sendable, Hashable {
    case write, writeMany, remove, removeMany, removeAll, apply
    case read, readMany, readDataAndKeys, readAllData, readAllDataAndKeys, readAllEntries
    case keyExists, keysExist, keyCount, allKeys, createdAt, updatedAt, scan
    case transaction, reopen, drop, wait
  }

  /// The check that makes sequences of this kind.
  let check: String
  /// How much of the budget this kind of sequence is given, in fifths.
  let share: Int
  /// Each call with its weight.
  let calls: KeyValuePairs<Call, Int>

  /// One entry at a time.
  static let singleCalls = CommandProfile(
    check: "model.single-calls", share: 1,
    calls: [
      .write: 300, .remove: 100, .removeAll: 10, .wait: 8,
      .read: 200, .keyExists: 60, .createdAt: 60, .updatedAt: 60, .keyCount: 60, .allKeys: 30,
      .readAllEntries: 60,
    ])

  /// Many entries at a time.
  static let batches = CommandProfile(
    check: "model.batches", share: 1,
    calls: [
      .writeMany: 120, .removeMany: 60, .apply: 200, .write: 40, .remove: 20, .removeAll: 6, .wait: 8,
      .read: 60, .createdAt: 30, .updatedAt: 30, .keyCount: 60, .allKeys: 20, .readAllEntries: 100,
      .readDataAndKeys: 40,
    ])

  /// Every call there is.
  static let everything = CommandProfile(
    check: "model.everything", share: 2,
    calls: [
      .write: 150, .writeMany: 60, .remove: 60, .removeMany: 30, .removeAll: 6, .apply: 100, .wait: 8,
      .read: 60, .readMany: 50, .readDataAndKeys: 50, .readAllData: 30, .readAllDataAndKeys: 30,
      .readAllEntries: 50, .keyExists: 30, .keysExist: 50, .keyCount: 30, .allKeys: 30, .createdAt: 30,
      .updatedAt: 30, .scan: 100,
    ])

  /// Transactions, and calls between them.
  static let transactions = CommandProfile(
    check: "model.transactions", share: 1,
    calls: [
      .transaction: 300, .write: 40, .remove: 20, .apply: 40, .wait: 4, .read: 40, .createdAt: 20,
      .updatedAt: 20,
      .keyCount: 30, .allKeys: 20, .readAllEntries: 80, .scan: 20,
    ])

  /// Changes, and reopening between them.
  static let reopened = CommandProfile(
    check: "model.reopened", share: 1,
    calls: [
      .write: 150, .writeMany: 40, .remove: 60, .removeMany: 20, .removeAll: 6, .apply: 80, .wait: 4,
      .read: 60, .createdAt: 30, .updatedAt: 30, .keyCount: 40, .allKeys: 20, .readAllEntries: 80,
      .scan: 40, .reopen: 12, .drop: 12,
    ])
}

/// What a sequence is about, besides its calls.
enum CommandTheme: Sendable, Hashable {
  /// Two or three short keys.
  case fewKeys
  /// Keys that engines are known to confuse.
  case similarKeys
  /// Forty keys.
  case manyKeys
  /// Values beyond 64 KiB and 1 MiB; few calls, as each costs much.
  case largeValues
}
