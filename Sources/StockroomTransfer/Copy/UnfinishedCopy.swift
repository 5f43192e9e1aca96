import StockroomCore

/// The marker entry in the target of a copy. It shows that the target has only a part of the entries.
enum UnfinishedCopy {
  /// The key of the marker in the target of an unfinished copy.
  static let marker = CacheKey(verbatim: "stockroom: unfinished copy")
  /// The key of the marker in the target of a merge, if the target does not store timestamps from the source. It exists
  /// from the first write of the merge until the merge is finished. The time of its last update is the time at which
  /// the merge last wrote. Its value contains the time at which the merge began to write, the times at which
  /// interrupted merges wrote, and, if a part of a batch may remain, the entries that are written next.
  static let mergeMarker = CacheKey(verbatim: "stockroom: unfinished merge")

  static func isMarker(_ key: CacheKey) -> Bool { key == marker || key == mergeMarker }

  /// - Parameter place: The name of the engine with the entry in the message.
  static func error(_ marker: CacheKey, in place: String) -> StorageError {
    let what = marker == mergeMarker ? "a merge into it" : "a copy to it"
    return StorageError(
      .unsupported,
      "\(place) has only a part of the entries, since \(what) has not been finished: do that again, or remove its entry "
        + "\(marker.value.debugDescription).")
  }
}

extension StorageEngine {
  /// Throws if a copy or a merge to this engine has not been finished, so that it may have only a part of the entries.
  ///
  /// - Parameter place: The name of this engine in the message.
  /// - Throws: `StorageError` with code `unsupported`; as `keysExist(_:)`.
  package func refuseUnfinishedCopy(in place: String = "The engine") async throws {
    let markers = [UnfinishedCopy.marker, UnfinishedCopy.mergeMarker]
    if let marker = try await keysExist(markers).first { throw UnfinishedCopy.error(marker, in: place) }
  }

  /// Throws if a copy to this engine has not been finished. When that copy is resumed, it would remove entries that
  /// have been merged into the engine in the meantime. An unfinished merge removes nothing.
  ///
  /// - Throws: `StorageError` with code `unsupported`; as `keyExists(_:)`.
  package func refuseMergingIntoUnfinishedCopy() async throws {
    guard try await keyExists(UnfinishedCopy.marker) else { return }
    throw UnfinishedCopy.error(UnfinishedCopy.marker, in: "The target")
  }
}
