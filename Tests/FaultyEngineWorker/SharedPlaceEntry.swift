import Foundation
import StockroomCore

/// An entry of a ``SharedPlaceFaultEngine``, as it is in its file.
struct SharedPlaceEntry: Codable, Sendable {
  var data: Data
  /// Microseconds since 1970. Their number of digits does not change for centuries.
  var created: Int
  var updated: Int
  var sequence: Int

  var createdAt: Date { Date(timeIntervalSince1970: Double(created) / 1e6) }
  var updatedAt: Date { Date(timeIntervalSince1970: Double(updated) / 1e6) }

  /// Sets the times to those of an imported entry.
  mutating func date(like entry: StorageEntry) {
    created = Int(entry.createdAt.timeIntervalSince1970 * 1e6)
    updated = Int(entry.updatedAt.timeIntervalSince1970 * 1e6)
  }
}

extension [String: SharedPlaceEntry] {
  /// Sets `updatedAt` of written entries to the time of the clock, but not before the last change.
  mutating func date(_ operations: [StorageOperation], after last: inout Int) {
    last = Swift.max(last, Int(Date().timeIntervalSince1970 * 1e6))
    for operation in operations {
      if case .write(_, let key) = operation { self[key.value]?.updated = last }
    }
  }

  mutating func apply(_ operations: [StorageOperation]) {
    let now = Int(Date().timeIntervalSince1970 * 1e6)
    var last = values.map(\.sequence).max() ?? 0
    for operation in operations {
      switch operation {
      case .removeAll: self = [:]
      case .remove(let key): self[key.value] = nil
      case .write(let data, let key):
        let old = self[key.value]
        last = Swift.max(last, old?.sequence ?? last + 1)
        self[key.value] = SharedPlaceEntry(
          data: Data(data), created: old?.created ?? now, updated: Swift.max(old?.updated ?? now, now),
          sequence: old?.sequence ?? last)
      }
    }
  }
}
