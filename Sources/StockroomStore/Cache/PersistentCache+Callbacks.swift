import Dispatch
import StockroomCore

// For callers that are not async.

extension PersistentCache {
  /// Calls `completion` with the value of a key: before this returns if the value is in memory, otherwise on the queue.
  ///
  /// - Parameters:
  ///   - key: The key of the value.
  ///   - queue: The queue on which `completion` is called if storage has to be read.
  ///   - completion: Receives the value, nil if there is none or it has expired, or the error of a read of the key.
  public func fetch(
    _ key: Key, queue: DispatchQueue, completion: @escaping @Sendable (Result<Value?, any Error>) -> Void
  ) {
    if let value = immediateValue(key) { return completion(.success(value)) }
    deliver(on: queue, completion) { try await self[key] }
  }

  /// Calls `completion` with the value of a key, loading it if there is none: before this returns if the value is in
  /// memory, otherwise on the queue. See ``fetch(_:expiresIn:fallback:)``.
  ///
  /// - Parameters:
  ///   - key: The key of the value.
  ///   - queue: The queue on which `completion` is called if storage has to be read.
  ///   - lifetime: The seconds until the value expires, from the end of loading. Nil means never.
  ///   - fallback: Loads the value.
  ///   - completion: Receives the value, or the error of `fallback` or of a read of the key.
  public func fetch(
    _ key: Key, queue: DispatchQueue, expiresIn lifetime: Double? = nil,
    fallback: @escaping @Sendable () async throws -> Value,
    completion: @escaping @Sendable (Result<Value, any Error>) -> Void
  ) {
    if let value = immediateValue(key) { return completion(.success(value)) }
    deliver(on: queue, completion) { try await self.fetch(key, expiresIn: lifetime, fallback: fallback) }
  }

  private func immediateValue(_ key: Key) -> Value? {
    do {
      return valueInMemory(try EncodedKey(key))
    } catch {
      return nil  // The asynchronous path throws the same error, and passes it to `completion`.
    }
  }

  private func deliver<Output: Sendable>(
    on queue: DispatchQueue, _ completion: @escaping @Sendable (Result<Output, any Error>) -> Void,
    _ body: @escaping @Sendable () async throws -> Output
  ) {
    Task {
      let result: Result<Output, any Error>
      do { result = .success(try await body()) } catch { result = .failure(error) }
      queue.async { completion(result) }
    }
  }
}
