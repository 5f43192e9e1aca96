#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Many tasks that count while the network fails.

extension NetworkUnderTest {
  /// Has many tasks count, each under its own keys, while the network repeatedly fails.
  func checkLoad(
    rounds: Int, _ fault: @escaping @Sendable (NetworkUnderTest) async throws -> Void
  ) async throws {
    let counters = MutexProtected<[Int: NetworkCounter]>([:])
    let acknowledged = AtomicCounter()
    try await whileRunning(
      {
        for _ in 0..<rounds {
          let before = acknowledged.value
          // Waits until the tasks have made progress with the same engine.
          while acknowledged.value < before + 64 { try await Task.sleep(for: .milliseconds(1)) }
          context.noteProgress()
          try await fault(self)
        }
      }, readerCount: 64
    ) { task in
      var counter = counters.withLock { $0[task] } ?? NetworkCounter(task: task)
      do {
        try await engine.count(counter)
        counter.acknowledge()
        acknowledged.increment()
      } catch let failure as CallFailure {
        switch (failure.error as? StorageError)?.code {
        case .outcomeUnknown?: counter.recordUnknownOutcome()
        case .unavailable?:
          counter.fail()
          await letTimePass()
        case .conflict?: counter.fail()
        default: throw failure
        }
      }
      counters.withLock { [counter] in $0[task] = counter }
    }
    let contents = try await contents()
    for counter in counters.withLock(\.values) { try counter.check(contents) }
    // Each connection may need another one to send the server a cancellation.
    let (most, limit) = (proxy.mostConnections, 2 * server.maximumConnections)
    guard most > limit else { return }
    throw Violation(
      "64 tasks had \(most) connections at the same time after connections had been lost; the maximum is "
        + "\(server.maximumConnections), plus as many that ask the server to cancel", rule: .n6)
  }
}

/// The numbers that one task has written under its keys, may have written, or has removed.
private struct NetworkCounter: Sendable {
  let task: Int
  /// The number to write next.
  private(set) var next = 1
  /// For each key, the last acknowledged number and the last number that may have been written; 0 stands for absent.
  private(set) var possible: [CacheKey: ClosedRange<Int>] = [:]

  init(task: Int) { self.task = task }

  /// The key of the next change. Every second number is written under the same key, where a delayed write would replace
  /// a later one. The others are written under eight keys in rotation, where a lost write is visible although the task
  /// has continued. Removals remove the previous number.
  var key: CacheKey {
    let number = removes ? next - 1 : next
    return CacheKey(
      verbatim: number.isMultiple(of: 2) ? "counter-\(task)" : "counter-\(task)-\(number / 2 % 8)")
  }

  /// Whether the next change removes the key.
  var removes: Bool { next.isMultiple(of: 3) }

  mutating func acknowledge() {
    possible[key] = removes ? 0...0 : next...next
    next += 1
  }

  mutating func recordUnknownOutcome() {
    possible[key] = removes ? 0...(possible[key]?.upperBound ?? 0) : (possible[key]?.lowerBound ?? 0)...next
    next += 1
  }

  mutating func fail() {
    possible[key] = possible[key] ?? 0...0
    next += 1
  }

  /// Whether all acknowledged changes are there, and nothing that cannot be.
  func check(_ contents: [CacheKey: Data]) throws {
    for (key, possible) in possible {
      let found = contents[key].flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
      try expect(
        possible.contains(found),
        "the number under \(key) was \(found), but only \(possible.lowerBound) to \(possible.upperBound) are "
          + "possible (0 means absent)")
    }
  }
}

extension EngineUnderTest {
  /// Writes the next number, or removes the previous one, in a transaction or alone. The methods alternate.
  fileprivate func count(_ counter: NetworkCounter) async throws {
    let (number, key) = (counter.next, counter.key)
    if counter.removes {
      return number.isMultiple(of: 2) ? try await remove(key: key) : try await remove(keys: [key])
    }
    let written = [(key: key, data: data("\(number)"))]
    switch number % 4 {
    case 0: try await wayOfImporting.write(self, written)
    case 1: try await apply([.write(written[0].data, key: key)])
    case _ where capabilities.contains(.transactions):
      try await withTransaction { transaction in
        _ = try transaction.read(key: key)
        try transaction.write(data("\(number)"), key: key)
      }
    default: try await write(written[0].data, key: key)
    }
  }
}
