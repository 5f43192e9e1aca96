import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The notification of a commit to the subscribers of other engines: its writer and the changed keys.
struct PostgreSQLAnnouncement {
  /// The maximum number of bytes that the server transmits:
  /// https://www.postgresql.org/docs/15/sql-notify.html
  private static let capacity = 7_999

  let text: String
  let writer: String
  let epoch: Int64
  let change: StorageChange

  init(of writer: UUID, _ epoch: Int64, _ operations: [[StorageOperation]]) {
    self.writer = writer.uuidString
    self.epoch = epoch
    // Each key takes at least four bytes and a comma.
    change = StorageChange(operations, keyLimit: Self.capacity / 5) ?? .everything
    let head = "\(self.writer) \(epoch) "
    var body = "*"
    if case .keys(let keys) = change {
      var room = Self.capacity - head.utf8.count
      let encoded = keys.prefix { key in
        room -= (key.value.utf8.count + 2) / 3 * 4 + 1
        return room >= 0
      }.map { $0.withUTF8 { Data($0).base64EncodedString() } }
      if encoded.count == keys.count { body = encoded.joined(separator: ",") }
    }
    text = head + body
  }

  /// Decodes a notification of the server. If it cannot be decoded, anything may have changed.
  init(_ text: String) {
    self.text = text
    let parts = text.split(separator: " ", maxSplits: 2)
    writer = parts.first.map(String.init) ?? ""
    epoch = parts.count > 1 ? Int64(parts[1]) ?? 0 : 0
    var keys: Set<CacheKey> = []
    for encoded in parts.count > 2 ? parts[2].split(separator: ",") : [] {
      guard let bytes = Data(base64Encoded: String(encoded)),
        let key = bytes.withUnsafeBytes({ CacheKey(utf8: $0) })
      else {
        change = .everything
        return
      }
      keys.insert(key)
    }
    change = keys.isEmpty ? .everything : .keys(keys)
  }
}
