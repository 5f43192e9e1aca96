import StockroomCore

// Keys that are hashes: an identifier that is too long for a key, and another that is the text of its hash.

extension StoreBackend {
  /// Refuses changes to items whose key is the hash of another identifier than their own, so that no item ever takes
  /// another's place by accident or by design.
  ///
  /// Each change is looked at step by step, and beside what the changes before it insert.
  func refuseSharedHashes(
    in batches: inout [Result<Batch, any Error>], identifiers: [CacheKey: String]
  ) async {
    var hashes: Set<CacheKey> = []
    for case .success(let batch) in batches {
      for step in batch.steps { for key in step.keys where key.isHash { hashes.insert(key) } }
    }
    if hashes.isEmpty, identifiers.isEmpty { return }

    /// Those of the entries that the engine holds, or may hold after the changes that came before.
    var others: [CacheKey: String] = [:]
    for index in batches.indices {
      guard case .success(let batch) = batches[index] else { continue }
      func isShared(_ key: CacheKey) -> Bool { hashes.contains(key) || identifiers[key] != nil }
      let keys = Set(batch.steps.flatMap(\.keys).filter(isShared))
      if keys.isEmpty { continue }
      do {
        let unknown = keys.filter { identifiers[$0] == nil && others[$0] == nil }
        for (key, data) in try await engine?.readDataAndKeys(keys: Array(unknown)) ?? [] {
          // What cannot be decoded has no identifier, and may be replaced.
          others[key] = (try? codec.decode(Item.self, from: data)).map(identifier)
        }
        // Two of a key if a change before this one exchanges them, which may fail yet.
        var owners: [CacheKey: [String]] = [:]
        for key in keys { owners[key] = [identifiers[key], others[key]].compactMap(\.self) }
        for step in batch.steps {
          if case .removeAll = step { owners = [:] }
          for key in step.keys where keys.contains(key) {
            for owner in owners[key] ?? [] { try key.checkIdentifier(owner) }
            if case .insert = step { owners[key] = [key.rawValue] } else { owners[key] = nil }
          }
        }
        for (key, owners) in owners { others[key] = owners.last }
      } catch {
        batches[index] = .failure(error)
      }
    }
  }
}
