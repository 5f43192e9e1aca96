import StockroomCore

/// What says in the target of a copy that it has a part of the entries only.
enum UnfinishedCopy {
  /// In a target that is not finished, there is an entry under this key.
  static let marker = CacheKey(verbatim: "stockroom: unfinished copy")
  /// In a target whose times are its own, there is one under this key until a merge is finished that has written something. When it
  /// was updated is when the merge wrote last. Its value says when it began to, when merges wrote that were interrupted before, and
  /// which entries are written next if a part of these may be left.
  static let mergeMarker = CacheKey(verbatim: "stockroom: unfinished merge")

  static func isMarker(_ key: CacheKey) -> Bool { key == marker || key == mergeMarker }

  /// - Parameter place: What the message calls the engine that has the entry.
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
  /// - Parameter place: What the message calls this engine.
  /// - Throws: `StorageError` with code `unsupported`; as `keysExist(_:)`.
  package func refuseUnfinishedCopy(in place: String = "The engine") async throws {
    let markers = [UnfinishedCopy.marker, UnfinishedCopy.mergeMarker]
    if let marker = try await keysExist(markers).first { throw UnfinishedCopy.error(marker, in: place) }
  }

  /// Throws if a copy to this engine has not been finished: resumed, it would remove what something else has merged into it. A merge
  /// that has not been finished removes nothing.
  ///
  /// - Throws: `StorageError` with code `unsupported`; as `keyExists(_:)`.
  package func refuseMergingIntoUnfinishedCopy() async throws {
    guard try await keyExists(UnfinishedCopy.marker) else { return }
    throw UnfinishedCopy.error(UnfinishedCopy.marker, in: "The target")
  }
}
