import Foundation
import StockroomCore

// Resources that an engine leaks on purpose.

extension LifeFaultEngine {
  private static let caches = MutexProtected<[[UInt8]]>([])

  /// Allocates a mebibyte for an opening, and never frees it.
  static func keepCache() { caches.withLock { $0.append([UInt8](repeating: 1, count: 1 << 20)) } }

  static func leaveFile(in directory: URL) throws {
    try Data(count: 100).write(to: directory.appending(path: "tmp-\(UUID().uuidString)"))
  }

  /// Creates an empty lock file for a key, even if the key does not exist.
  static func leaveLock(of key: CacheKey, in directory: URL) throws {
    try Data().write(to: directory.appending(path: "lock-\(CacheKey(key.value).value)"))
  }

  /// How often the place has been opened, including this time.
  static func countOpening(of directory: URL) throws -> Int {
    let file = directory.appending(path: "openings")
    let earlier = try FileManager.default.fileExists(atPath: file.path) ? Data(contentsOf: file).count : 0
    try Data(count: earlier + 1).write(to: file)
    return earlier + 1
  }
}

extension LifeFaultEngine.State {
  /// Sets the times of all entries except the first ones to the current time.
  mutating func redate(beyond count: Int) {
    let now = Date()
    for (key, _) in entries.sorted(by: { $0.value.sequence < $1.value.sequence }).dropFirst(count) {
      entries[key]?.createdAt = now
      entries[key]?.updatedAt = now
    }
  }
}
