#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An engine that makes every change as a batch. It implements ``commit(_:)``, from which the seven writing methods of
/// ``StorageEngine`` and transactions are derived.
///
/// Each of these methods checks keys and sizes before it changes anything (rules K1, V2, W4). Methods that take many entries
/// leave the caller's actor, since even checking a hundred thousand keys takes long (rule C5).
package protocol BatchWritingEngine: StorageEngine {
  /// The maximum size of a value in the underlying storage, and its name; nil if ``commit(_:)`` checks it.
  static var valueLimit: ValueLimit? { get }

  /// Notifies subscribers of commits.
  var changeHub: ChangeHub { get throws }

  /// Makes the changes of the request, as one batch, and notifies ``changeHub``. If there is nothing to
  /// change, it fails only if the engine is closed.
  func commit(_ request: WriteRequest) async throws
}

/// The maximum size of a value in a library.
package struct ValueLimit: Sendable {
  package let library: String
  package let size: Int

  package init(of library: String, _ size: Int) {
    self.library = library
    self.size = size
  }

  /// - Throws: ``StorageError`` with code `valueTooLarge`.
  func check(_ data: Data, _ key: CacheKey) throws {
    guard data.count > size else { return }
    throw StorageError(
      .valueTooLarge, "\(library) holds values of \(size) bytes, and that of \(key) has \(data.count).")
  }
}

extension BatchWritingEngine {
  package static var valueLimit: ValueLimit? { nil }

  /// Writes the value, as a batch of one operation.
  public func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try Self.valueLimit?.check(data, key)
    try await perform(.operations([.write(data, key: key)]))
  }

  /// Writes the entries as one batch.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await commitValidated(.operations(dataAndKeys.map { .write($0.data, key: $0.key) }))
  }

  /// Writes the entries with their timestamps, as one batch.
  ///
  /// Timestamps are stored as whole nanoseconds, from 1823 to 2116; timestamps outside this range are stored as the nearest one
  /// in it. An entry that was updated before it was created is stored as created when it was updated.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    try await commitValidated(.entries(entries))
  }

  /// Removes the entry under the key, as a batch of one operation.
  public func remove(key: CacheKey) async throws {
    try key.validate()
    try await perform(.operations([.remove(key: key)]))
  }

  /// Removes the entries under the keys, as one batch.
  @concurrent public func remove(keys: [CacheKey]) async throws {
    try await commitValidated(.operations(keys.map { .remove(key: $0) }))
  }

  /// Removes all entries, as a batch of one operation.
  public func removeAllData() async throws {
    try await perform(.operations([.removeAll]))
  }

  /// Performs the operations in the given order, as one batch.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try await commitValidated(.operations(operations))
  }

  private func perform(_ request: WriteRequest) async throws {
    let hub = try changeHub
    hub.beginWrite()
    defer { hub.endWrite() }
    try await commit(request)
  }

  private func commitValidated(_ request: WriteRequest) async throws {
    let operations = request.knownOperations ?? []
    try operations.validate()
    if let limit = Self.valueLimit {
      for case .write(let data, let key) in operations { try limit.check(data, key) }
    }
    try await perform(request)
  }

  /// Runs the body on the engine's own thread, with an overlay of its changes in front of the engine's entries, and commits the
  /// changes as one batch, in a group with concurrent writes.
  ///
  /// Costs the same as the body's reads and a batch of its changes. Writes wait while the body runs, reads do
  /// not.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let outcome = MutexProtected<Swift.Result<Result, any Error>?>(nil)
    try await perform(
      .transaction { transaction in
        do {
          let result = try body(transaction)
          outcome.withLock { $0 = .success(result) }
          return true
        } catch {
          outcome.withLock { $0 = .failure(error) }
          return false
        }
      })
    // The body of a committed request has been run.
    guard let outcome = outcome.withLock({ $0 }) else {
      throw StorageError(.io, "The transaction has not been run.")
    }
    return try outcome.get()
  }
}
