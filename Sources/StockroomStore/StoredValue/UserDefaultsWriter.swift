import Foundation
import StockroomCore

/// A ``StoredValue`` of any type, seen from the others under its key.
protocol UserDefaultsReader: AnyObject, Sendable {
  /// Reads what is stored and gives back a closure that tells the observers, if they have to be told.
  func refresh() -> (@Sendable () -> Void)?
}

/// Lets those who write to `UserDefaults` do so one after another, and tells the others under the same key.
///
/// There is one for the process: two `UserDefaults` of the same suite are different objects that do not say
/// so. Its lock may be taken again by the thread that has it, since setting a default calls observers, who
/// may want to write too. So it is held while the closure of an ``StoredValue/update(_:)`` runs, for all keys.
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

  /// Calls `body` while nobody else writes; then tells all who read the key.
  func write(_ entry: UserDefaultsEntry, _ body: () throws -> Void) throws {
    var reports: [@Sendable () -> Void] = []
    defer { for report in reports { report() } }
    try lock.withLock {
      defer { reports = readers(of: entry.key).compactMap { $0.refresh() } }
      try entry.withLock(body)
    }
  }

  /// Tells all who read any key, if what they read has changed.
  ///
  /// Not while somebody writes, who tells of that change before the operation returns.
  func refreshAll() {
    let all = readers.withLock { readers in readers.values.flatMap { $0.values.compactMap(\.value) } }
    for report in lock.withLock({ all.compactMap { $0.refresh() } }) { report() }
  }

  private func readers(of key: String) -> [any UserDefaultsReader] {
    readers.withLock { readers in readers[key, default: [:]].values.compactMap(\.value) }
  }
}
