import StockroomCore

/// A subscriber that checks whether it receives the expected changes.
struct ChangeSubscriber: Sendable {
  private let changes: StorageChanges
  /// How long to wait for the next element that covers anything. It usually arrives in a thousandth of that
  /// time.
  private let timeout: Duration

  /// Subscribes.
  init(to engine: EngineUnderTest, _ context: CheckContext) async throws {
    changes = try await engine.changes()
    timeout = context.timeout(atMost: .seconds(60))
  }

  init(to engine: EngineUnderTest, timeout: Duration) async throws {
    changes = try await engine.changes()
    self.timeout = timeout
  }

  /// The next element.
  func next() async -> StorageChange? {
    var iterator = changes.makeAsyncIterator()
    return await iterator.next()
  }

  /// Receives elements until they have covered the changes of these keys.
  ///
  /// - Parameters:
  ///   - what: The changes, as the subject of a sentence.
  ///   - note: Called with each element.
  func expectCovered(
    _ keys: some Collection<CacheKey>, _ what: String,
    note: @escaping @Sendable (StorageChange) async throws -> Void = { _ in }
  ) async throws {
    if keys.isEmpty { return }
    let missing = MutexProtected(Set(keys))
    // The changes may still be in progress, on a busy machine for a long time.
    let progress = CheckProgress()
    let outcome = await withStallTimeout(timeout, since: progress) { () -> Result<Bool, any Error> in
      do {
        var iterator = changes.makeAsyncIterator()
        while let change = await iterator.next() {
          try await note(change)
          if case .keys(let found) = change {
            let (covered, isOver) = missing.withLock { missing in
              let before = missing.count
              missing.subtract(found)
              return (before - missing.count, missing.isEmpty)
            }
            if isOver { return .success(true) }
            if covered > 0 { progress.note() }
          } else {
            return .success(true)
          }
        }
        return .success(false)
      } catch {
        return .failure(error)
      }
    }
    switch outcome {
    case .success(let result):
      try expect(try result.get(), "the stream ended before an element had covered \(what)")
    case .failure:
      let left = missing.withLock { Array($0).inByteOrder() }
      throw Violation(
        "for \(timeout), no element covered more of \(what), and \(left.count) keys were not covered: "
          + "\(describe(left))"
      )
    }
  }

  /// Receives the remaining elements, until the stream ends.
  func expectEnd(_ when: String) async throws {
    let outcome = await withStallTimeout(timeout) {
      var iterator = changes.makeAsyncIterator()
      while await iterator.next() != nil {}
    }
    if case .failure = outcome { throw Violation("a stream had not ended \(timeout) \(when)") }
  }
}

/// A subscriber that receives elements in a separate task, and keeps them.
final class ChangeCollector: Sendable {
  private final class Received: Sendable {
    let elements = MutexProtected<[StorageChange]>([])
  }

  private let received = Received()
  private let task: Task<Void, Never>

  init(_ changes: StorageChanges) {
    task = Task { @concurrent [received] in
      for await change in changes { received.elements.withLock { $0.append(change) } }
    }
  }

  deinit { task.cancel() }

  var elements: [StorageChange] { received.elements.withLock { $0 } }

  /// Waits for an element that covers a change of the key. Returns whether there was one in time.
  func hasReceived(_ key: CacheKey, within timeout: Duration) async -> Bool {
    let isCovered = { @Sendable in
      self.elements.contains { if case .keys(let keys) = $0 { keys.contains(key) } else { true } }
    }
    let outcome = await withStallTimeout(timeout) {
      while !isCovered(), !Task.isCancelled { await letTimePass() }
    }
    if case .success = outcome { return true }
    return isCovered()
  }

  /// Ends the loop by cancelling its task. Returns whether it has ended in time.
  func cancel(within timeout: Duration) async -> Bool {
    task.cancel()
    return await hasEnded(within: timeout)
  }

  /// Waits for the end of the loop. Returns whether it has ended in time.
  func hasEnded(within timeout: Duration) async -> Bool {
    if case .success = await withStallTimeout(timeout, { [task] in await task.value }) {
      true
    } else {
      false
    }
  }
}
