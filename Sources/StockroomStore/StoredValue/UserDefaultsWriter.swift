import Foundation
import StockroomCore

/// A ``StoredValue`` of any type, to be refreshed after a change of its key.
protocol UserDefaultsReader: AnyObject, Sendable {
  /// Reads the stored value. Returns a closure that notifies the observers, if there may be any.
  func refresh() -> (@Sendable () -> Void)?
}

/// Serializes the writes to `UserDefaults`, and refreshes the other instances with the same key.
///
/// There is one writer for the process, since two `UserDefaults` of the same suite are different objects and have no public
/// property by which they could be compared. Its lock is recursive, since setting a default calls observers, which may
/// write too. The lock is held while the closure of an ``StoredValue/update(_:)`` runs, and is the same for all keys.
/// Reading never waits for it.
final class UserDefaultsWriter: Sendable {
  static let shared = UserDefaultsWriter()

  private struct Reader {
    weak var value: (any UserDefaultsReader)?
  }

  private let lock = NSRecursiveLock()
  private let readers = MutexProtected<[String: [ObjectIdentifier: Reader]]>([:])

  func add(_ reader: some UserDefaultsReader, key: String) {
    readers.withLock { $0[key, default: [:]][ObjectIdentifier(reader)] = Reader(value: reader) }
  }

  func remove(_ id: ObjectIdentifier, key: String) {
    readers.withLock { readers in
      readers[key]?[id] = nil
      if readers[key]?.isEmpty == true { readers[key] = nil }
    }
  }

  /// Calls `body` under the lock, then refreshes all readers of the key.
  func write(_ entry: UserDefaultsEntry, _ body: () throws -> Void) throws {
    var reports: [@Sendable () -> Void] = []
    defer { for report in reports { report() } }
    try lock.withLock {
      defer { reports = readers(of: entry.key).compactMap { $0.refresh() } }
      try entry.withLock(body)
    }
  }

  /// Refreshes all readers of all keys.
  ///
  /// Waits for a write in progress, which reports its own change.
  func refreshAll() {
    let all = readers.withLock { readers in readers.values.flatMap { $0.values.compactMap(\.value) } }
    for report in lock.withLock({ all.compactMap { $0.refresh() } }) { report() }
  }

  private func readers(of key: String) -> [any UserDefaultsReader] {
    readers.withLock { readers in readers[key, default: [:]].values.compactMap(\.value) }
  }
}
