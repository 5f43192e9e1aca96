import Dispatch
import Foundation
import StockroomCore
import Testing

@testable import StockroomStore

@Suite("The parallel map")
struct ParallelMapTests {
  @Test("preserves the order for any number of elements", arguments: [0, 1, 63, 64, 65, 79, 1_000, 100_003])
  func order(count: Int) async throws {
    let results = try await parallelMap(Array(0..<count)) { String($0) }
    #expect(results == (0..<count).map(String.init))
  }

  @Test("transforms each element once")
  func once() async throws {
    let seen = MutexProtected<[Int: Int]>([:])
    _ = try await parallelMap(Array(0..<5_000)) { number in seen.withLock { $0[number, default: 0] += 1 } }
    #expect(seen.withLock { $0 } == Dictionary(uniqueKeysWithValues: (0..<5_000).map { ($0, 1) }))
  }

  @Test("uses more than one thread for many elements, and one for few")
  func threads() async throws {
    /// - Parameter isPatient: Whether the first element waits until another thread has begun with one.
    func threads(_ count: Int, isPatient: Bool) async throws -> Int {
      let seen = MutexProtected<Set<ObjectIdentifier>>([])
      let hasSecond = DispatchSemaphore(value: 0)
      _ = try await parallelMap(Array(0..<count)) { _ in
        let (isFirst, isSecond) = seen.withLock { seen in
          let count = seen.count
          let isNew = seen.insert(ObjectIdentifier(Thread.current)).inserted
          return (isNew && count == 0, isNew && count == 1)
        }
        if isSecond { hasSecond.signal() }
        if isFirst, isPatient { _ = hasSecond.wait(timeout: .now() + 100) }
      }
      return seen.withLock { $0.count }
    }
    #expect(try await threads(63, isPatient: false) == 1)
    if ProcessInfo.processInfo.activeProcessorCount > 1 {
      #expect(try await threads(5_000, isPatient: true) > 1)
    }
  }

  @Test("throws the error of the first failing element, even if a later one fails earlier")
  func firstError() async throws {
    struct Failure: Error, Equatable { let element: Int }
    for culprits in [[0], [63], [64, 999], [999], [17, 31, 500], Array(0..<1_000)] {
      await #expect(throws: Failure(element: culprits[0])) {
        try await parallelMap(Array(0..<1_000)) { number in
          // Takes long, and longer for the first elements.
          _ = (0..<(1_000 - number) * 20).reduce(0) { ($0 &* 31) ^ $1 }
          if culprits.contains(number) { throw Failure(element: number) }
        }
      }
    }
  }

  @Test("stops soon after an error")
  func stops() async throws {
    struct Failure: Error {}
    var counts: [Int] = []
    // On a busy machine the thread of the first element may be suspended while others continue.
    for _ in 0..<20 where !counts.contains(where: { $0 < 500_000 }) {
      let done = MutexProtected(0)
      await #expect(throws: Failure.self) {
        try await parallelMap(Array(0..<1_000_000)) { number in
          done.withLock { $0 += 1 }
          if number == 0 { throw Failure() }
        }
      }
      counts.append(done.withLock { $0 })
    }
    #expect(counts.contains { $0 < 500_000 }, "\(counts)")
  }

  @Test("does nothing in a cancelled task", arguments: [1, 10_000])
  func cancelled(count: Int) async throws {
    let done = MutexProtected(0)
    let mapping = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      return try await parallelMap(Array(0..<count)) { _ in done.withLock { $0 += 1 } }
    }
    await #expect(throws: CancellationError.self) { try await mapping.value }
    #expect(done.withLock { $0 } == 0)
  }

  @Test("stops when its task is cancelled", arguments: [10, 10_000])
  func cancellation(count: Int) async throws {
    let (start, signal) = AsyncStream<Void>.makeStream()
    let task = MutexProtected<Task<Void, any Error>?>(nil)
    let done = MutexProtected(0)
    let mapping = Task {
      for await _ in start {}
      _ = try await parallelMap(Array(0..<count)) { number in
        if number == 3 { task.withLock { $0?.cancel() } }
        done.withLock { $0 += 1 }
      }
    }
    task.withLock { $0 = mapping }
    signal.finish()
    await #expect(throws: CancellationError.self) { try await mapping.value }
    #expect(done.withLock { $0 } < count)
  }
}
