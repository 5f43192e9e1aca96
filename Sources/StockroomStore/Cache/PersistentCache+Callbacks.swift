import Dispatch
import StockroomCore

// For code that does not use tasks.

extension PersistentCache {
  /// Looks a value up and hands it on: at once, before this returns, if it is in memory, and on the queue if not.
  ///
  /// - Parameters:
  ///   - key: what the value is found by.
  ///   - queue: where `completion` is called if storage has to be asked.
  ///   - completion: gets the value, nil if there is none or it has expired, or what a read of the key throws.
  public func fetch(
    _ key: Key, queue: DispatchQueue, completion: @escaping @Sendable (Result<Value?, any Error>) -> Void
  ) {
    if let value = valueAtOnce(key) { return completion(.success(value)) }
    handOver(to: queue, completion) { try await self[key] }
  }

  /// Looks a value up, loads it if there is none, and hands it on: at once, before this returns, if it is in memory,
  /// and on the queue if not. See ``fetch(_:expiresIn:fallback:)``.
  ///
  /// - Parameters:
  ///   - key: what the value is found by.
  ///   - queue: where `completion` is called if storage has to be asked.
  ///   - lifetime: seconds from the end of the loading until the value expires. Nil means never.
  ///   - fallback: loads the value.
  ///   - completion: gets the value, or what `fallback` or a read of the key throws.
  public func fetch(
    _ key: Key, queue: DispatchQueue, expiresIn lifetime: Double? = nil,
    fallback: @escaping @Sendable () async throws -> Value,
    completion: @escaping @Sendable (Result<Value, any Error>) -> Void
  ) {
    if let value = valueAtOnce(key) { return completion(.success(value)) }
    handOver(to: queue, completion) { try await self.fetch(key, expiresIn: lifetime, fallback: fallback) }
  }

  private func valueAtOnce(_ key: Key) -> Value? {
    do {
      return valueInMemory(try KeyText(key))
    } catch {
      return nil  // It is thrown anew, and handed over, when the value is looked up.
    }
  }

  private func handOver<Answer: Sendable>(
    to queue: DispatchQueue, _ completion: @escaping @Sendable (Result<Answer, any Error>) -> Void,
    _ answer: @escaping @Sendable () async throws -> Answer
  ) {
    Task {
      let result: Result<Answer, any Error>
      do { result = .success(try await answer()) } catch { result = .failure(error) }
      queue.async { completion(result) }
    }
  }
}
