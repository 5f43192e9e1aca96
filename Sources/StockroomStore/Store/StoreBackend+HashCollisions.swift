import StockroomCore

// Collisions of keys that are hashes: the key of an identifier that is too long is its hash, which is also the key of an identifier
// that is the text of this hash, and of any other long identifier with the same hash.

extension StoreBackend {
  /// Rejects changes to items whose key is the hash of another item's identifier, so that no item can replace another
  /// with a different identifier.
  ///
  /// The steps of each change are examined in order, and take into account the items that earlier changes insert.
  func rejectHashCollisions(
    in batches: inout [Result<Batch, any Error>], identifiers: [CacheKey: String]
  ) async {
    var hashes: Set<CacheKey> = []
    for case .success(let batch) in batches {
      for step in batch.steps { for key in step.keys where key.isHash { hashes.insert(key) } }
    }
    if hashes.isEmpty, identifiers.isEmpty { return }

    /// The identifiers of the entries that the engine holds, or may hold after the earlier changes.
    var others: [CacheKey: String] = [:]
    for index in batches.indices {
      guard case .success(let batch) = batches[index] else { continue }
      func isShared(_ key: CacheKey) -> Bool { hashes.contains(key) || identifiers[key] != nil }
      let keys = Set(batch.steps.flatMap(\.keys).filter(isShared))
      if keys.isEmpty { continue }
      do {
        let unknown = keys.filter { identifiers[$0] == nil && others[$0] == nil }
        for (key, data) in try await engine?.readDataAndKeys(keys: Array(unknown)) ?? [] {
          // An entry that cannot be decoded has no identifier, and may be replaced.
          others[key] = (try? decoded(data, of: key)).map(identifier)
        }
        // A key has two owners if an earlier change replaces one with the other, which may still fail.
        var owners: [CacheKey: [String]] = [:]
        for key in keys { owners[key] = [identifiers[key], others[key]].compactMap(\.self) }
        for step in batch.steps {
          if case .removeAll = step { owners = [:] }
          for key in step.keys where keys.contains(key) {
            for owner in owners[key] ?? [] { try key.checkIdentifier(owner) }
            if case .insert = step { owners[key] = [key.rawValue] } else { owners[key] = nil }
          }
        }
        // It is not known yet whether the modification inserts the item.
        if batch.update?.isModification == true { for key in keys { owners[key] = [key.rawValue] } }
        for (key, owners) in owners { others[key] = owners.last }
      } catch {
        batches[index] = .failure(error)
      }
    }
  }
}
