import StockroomCore

extension StoreBackend {
  /// A stream of the changes by others from now on; nil if the engine has no feed, or one that does not leave out the changes of an
  /// origin.
  func changes() async throws -> StorageChanges? {
    guard let engine, engine.capabilities.contains(.changeFeed) else { return nil }
    let changes = try await asOrigin { try await engine.changes() }
    return changes.origin === origin ? changes : nil
  }

  /// The entries of the engine under these keys, decoded.
  ///
  /// - Parameter provisional: Items whose sequence numbers are also needed, read together with the entries.
  @concurrent
  func state(
    of keys: Set<CacheKey>, and provisional: consuming ArraySlice<Item> = []
  ) async throws -> EngineState<Item> {
    var state = EngineState<Item>()
    guard let engine else { return state }
    let others = provisional.map { CacheKey(identifier: identifier($0)) }.filter { !keys.contains($0) }
    provisional = []
    let identifiers = Dictionary(others.map { ($0, $0) }) { first, _ in first }
    let entries = try await engine.readEntries(keys: Array(keys) + others)
    // Decoding records the entries that still have an old version again.
    versions.forgetOld(keys)
    for entry in entries {
      let sequence = Self.sequence(of: entry)
      if sequence == nil { state.hasSequences = false }
      if let key = identifiers[entry.key] {
        state.sequences.append((key, sequence ?? 0))
      } else {
        state.changed.append(decoded(entry, sequence ?? 0))
      }
    }
    let found = Set(entries.map(\.key))
    state.absent = keys.filter { !found.contains($0) } + others.filter { !found.contains($0) }
    return state
  }

  private func decoded(_ entry: StorageEntry, _ sequence: Int) -> EngineState<Item>.Entry {
    let (stamp, digest) = (EntryStamp(entry), ValueDigest(entry.data))
    do throws(StorageError) {
      let (key, item) = try item(in: entry)
      return EngineState.Entry(
        key: key, sequence: sequence, content: .success(item), stamp: stamp, digest: digest)
    } catch {
      return EngineState.Entry(
        key: entry.key, sequence: sequence, content: .failure(error), stamp: stamp, digest: digest)
    }
  }

  /// Runs `body` with the origin of this store, so that the engine's feed does not report the changes of `body` to this store.
  func asOrigin<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    try await ChangeOrigin.$current.withValue(origin) { try await body() }
  }
}
