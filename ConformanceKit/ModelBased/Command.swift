#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// One call of a sequence, with its arguments.
enum Command: Sendable, Hashable {
  case write(CommandEntry)
  case writeMany([CommandEntry])
  /// `writeEntries(_:)`.
  case writeEntries([DatedEntry])
  case remove(CacheKey)
  case removeMany([CacheKey])
  case removeAll
  case apply([CommandStep])
  /// A transaction whose body performs these steps, and then throws if `throwing` is true.
  case transaction([BodyStep], throwing: Bool)
  case ask(CommandQuery)
  /// Releases the engine, with or without `close()`, and opens another one on its place.
  case reopen(closing: Bool)
  /// Waits until the clock differs by more than the tolerance of rule W2.
  case wait
}

/// An entry of a batch.
struct CommandEntry: Sendable, Hashable {
  var key: CacheKey
  var value: CommandValue
}

/// An entry with given times, as imported from another engine.
struct DatedEntry: Sendable, Hashable {
  var entry: CommandEntry
  /// The times, in hours after a time in the past.
  var createdAt: Int
  var updatedAt: Int

  static func date(_ hours: Int) -> Date { Date(timeIntervalSince1970: TimeInterval(seconds(hours))) }

  private static func seconds(_ hours: Int) -> Int { 1_500_000_000 + 3_600 * hours }

  /// The time as a Swift expression.
  static func literal(_ hours: Int) -> String { "Date(timeIntervalSince1970: \(seconds(hours)))" }

  var storageEntry: StorageEntry {
    StorageEntry(
      key: entry.key, data: entry.value.data, createdAt: Self.date(createdAt), updatedAt: Self.date(updatedAt)
    )
  }

  func renaming(_ rename: (CacheKey) -> CacheKey) -> DatedEntry {
    var renamed = self
    renamed.entry = entry.renaming(rename)
    return renamed
  }
}

/// A step of a batch for `apply(_:)`, or of a transaction.
enum CommandStep: Sendable, Hashable {
  case write(CommandEntry)
  /// Only allowed in a transaction, not in a batch.
  case writeEntry(DatedEntry)
  case remove(CacheKey)
  case removeAll
}

/// A call that changes nothing.
enum CommandQuery: Sendable, Hashable {
  case read(CacheKey)
  case readMany([CacheKey])
  case readDataAndKeys([CacheKey])
  case readEntries([CacheKey])
  case readAllData
  case readAllDataAndKeys
  case readAllEntries
  case keyExists(CacheKey)
  case keysExist([CacheKey])
  case keyCount
  case allKeys
  case createdAt(CacheKey)
  case updatedAt(CacheKey)
  case scan(KeyRange, limit: Int?)
}

extension Command {
  /// The changes of the call, step by step; nil if it changes no entries.
  var steps: [CommandStep]? {
    switch self {
    case .write(let entry): [.write(entry)]
    case .writeMany(let entries): entries.map { .write($0) }
    case .writeEntries(let entries): entries.map { .writeEntry($0) }
    case .remove(let key): [.remove(key)]
    case .removeMany(let keys): keys.map { .remove($0) }
    case .removeAll: [.removeAll]
    case .apply(let steps): steps
    case .transaction(let steps, let isThrowing): isThrowing ? [] : steps.compactMap(\.change)
    case .ask, .reopen, .wait: nil
    }
  }

  /// Every key among the arguments of the call.
  var keys: [CacheKey] {
    if case .ask(let question) = self { return question.keys }
    if case .transaction(let steps, _) = self { return steps.flatMap(\.keys) }
    return (steps ?? []).compactMap(\.key)
  }

  /// Whether the engine has to refuse the call because of an invalid key (rules K1 and W4).
  var isRefused: Bool { keys.contains { !$0.isValid } }

  /// The call with other keys.
  func renaming(_ rename: (CacheKey) -> CacheKey) -> Command {
    switch self {
    case .write(let entry): .write(entry.renaming(rename))
    case .writeMany(let entries): .writeMany(entries.map { $0.renaming(rename) })
    case .writeEntries(let entries): .writeEntries(entries.map { $0.renaming(rename) })
    case .remove(let key): .remove(rename(key))
    case .removeMany(let keys): .removeMany(keys.map(rename))
    case .apply(let steps): .apply(steps.map { $0.renaming(rename) })
    case .transaction(let steps, let isThrowing):
      .transaction(steps.map { $0.renaming(rename) }, throwing: isThrowing)
    case .ask(let question): .ask(question.renaming(rename))
    case .removeAll, .reopen, .wait: self
    }
  }
}

extension CommandEntry {
  func renaming(_ rename: (CacheKey) -> CacheKey) -> CommandEntry { .init(key: rename(key), value: value) }
}

extension CommandStep {
  func renaming(_ rename: (CacheKey) -> CacheKey) -> CommandStep {
    switch self {
    case .write(let entry): .write(entry.renaming(rename))
    case .writeEntry(let dated): .writeEntry(dated.renaming(rename))
    case .remove(let key): .remove(rename(key))
    case .removeAll: .removeAll
    }
  }

  var key: CacheKey? {
    switch self {
    case .write(let entry): entry.key
    case .writeEntry(let dated): dated.entry.key
    case .remove(let key): key
    case .removeAll: nil
    }
  }
}

extension CommandQuery {
  var keys: [CacheKey] {
    switch self {
    case .read(let key), .keyExists(let key), .createdAt(let key), .updatedAt(let key): [key]
    case .readMany(let keys), .readDataAndKeys(let keys), .readEntries(let keys), .keysExist(let keys): keys
    case .scan(let range, _): [range.after, range.upTo].compactMap { $0 }
    case .readAllData, .readAllDataAndKeys, .readAllEntries, .keyCount, .allKeys: []
    }
  }

  func renaming(_ rename: (CacheKey) -> CacheKey) -> CommandQuery {
    switch self {
    case .read(let key): return .read(rename(key))
    case .keyExists(let key): return .keyExists(rename(key))
    case .createdAt(let key): return .createdAt(rename(key))
    case .updatedAt(let key): return .updatedAt(rename(key))
    case .readMany(let keys): return .readMany(keys.map(rename))
    case .readDataAndKeys(let keys): return .readDataAndKeys(keys.map(rename))
    case .readEntries(let keys): return .readEntries(keys.map(rename))
    case .keysExist(let keys): return .keysExist(keys.map(rename))
    case .scan(let range, let limit):
      var renamed = KeyRange(after: range.after.map(rename), upTo: range.upTo.map(rename))
      renamed.prefix = range.prefix
      return .scan(renamed, limit: limit)
    case .readAllData, .readAllDataAndKeys, .readAllEntries, .keyCount, .allKeys: return self
    }
  }

  var method: ReadMethod {
    switch self {
    case .read: .read
    case .readMany: .readMany
    case .readDataAndKeys: .readDataAndKeys
    case .readEntries: .readEntries
    case .readAllData: .readAllData
    case .readAllDataAndKeys: .readAllDataAndKeys
    case .readAllEntries: .readAllEntries
    case .keyExists: .keyExists
    case .keysExist: .keysExist
    case .keyCount: .keyCount
    case .allKeys: .allKeys
    case .createdAt: .createdAt
    case .updatedAt: .updatedAt
    case .scan: .scan
    }
  }

  /// The name of the method in sentences.
  var name: String { method.call }

  /// The rule that the method breaks if its result is wrong although `read(key:)` returns the right values.
  var rule: ContractRule { method.rule }
}

extension CacheKey {
  /// Whether every engine has to accept the key (rule K1).
  var isValid: Bool { (1...Self.maximumLength).contains(value.utf8.count) }
}
