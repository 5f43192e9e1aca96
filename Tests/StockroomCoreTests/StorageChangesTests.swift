import StockroomCore
import Synchronization
import Testing

/// The behavior of a stream of changes, whichever engine feeds it.
@Suite struct StorageChangesTests {
  private let a = CacheKey(verbatim: "a")
  private let b = CacheKey(verbatim: "b")

  @Test("Elements that have not been received are merged, and become everything above the limit")
  func merges() async {
    let (changes, continuation) = StorageChanges.makeStream(keyLimit: 2)
    var iterator = changes.makeAsyncIterator()
    continuation.send(.keys([a]))
    continuation.send(.keys([b]))
    #expect(await iterator.next() == .keys([a, b]))
    continuation.send(.keys([a, b]))
    continuation.send(.keys([CacheKey(verbatim: "c")]))
    #expect(await iterator.next() == .everything)
    continuation.send(.keys([a]))
    #expect(await iterator.next() == .keys([a]))
  }

  @Test("A stream ends once all elements sent before have been received")
  func finishes() async {
    let (changes, continuation) = StorageChanges.makeStream()
    var iterator = changes.makeAsyncIterator()
    continuation.send(.keys([a]))
    continuation.finish()
    continuation.send(.keys([b]))
    #expect(await iterator.next() == .keys([a]))
    #expect(await iterator.next() == nil)
  }

  @Test("A loop ends when its task is cancelled, even while changes keep coming")
  func cancellation() async {
    let (changes, continuation) = StorageChanges.makeStream()
    let a = a
    let received = Counter()
    continuation.send(.keys([a]))
    await withTaskGroup { group in
      group.addTask {
        for await _ in changes {
          received.increment()
          if received.value == 3 { withUnsafeCurrentTask { $0?.cancel() } }
          // Sends the next change before the loop requests it.
          if received.value < 100 { continuation.send(.keys([a])) } else { break }
        }
      }
    }
    #expect(received.value == 3)
  }

  @Test("Elements that a cancelled consumer has not received go to the next consumer")
  func nextConsumer() async {
    let (changes, continuation) = StorageChanges.makeStream()
    let a = a
    let cancelled = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      continuation.send(.keys([a]))
      var iterator = changes.makeAsyncIterator()
      return await iterator.next()
    }
    #expect(await cancelled.value == nil)
    var iterator = changes.makeAsyncIterator()
    #expect(await iterator.next() == .keys([a]))
  }

  @Test("A termination handler runs once the stream is released, or at once if it already has been")
  func termination() {
    var stream: (changes: StorageChanges, continuation: StorageChanges.Continuation)? =
      StorageChanges.makeStream()
    let continuation = stream?.continuation
    let counter = Counter()
    continuation?.onTermination { counter.increment() }
    withExtendedLifetime(stream) { #expect(counter.value == 0) }
    stream = nil
    #expect(counter.value == 1)
    continuation?.onTermination { counter.increment() }
    #expect(counter.value == 2)
  }
}

private final class Counter: Sendable {
  private let count = Atomic(0)
  var value: Int { count.load(ordering: .sequentiallyConsistent) }
  func increment() { count.wrappingAdd(1, ordering: .sequentiallyConsistent) }
}
