import Foundation
import StockroomCore
import Synchronization
import Testing

@Suite struct ThreadResultTests {
  @Test("A result that is set before the task waits is returned without a race")
  func finishedFirst() async throws {
    for count in 1...20 {
      let numbers = try await ThreadResult<[Int]>.wait { finish in
        // Relaxed, so that only the result itself orders the accesses of the threads.
        let hasFinished = Atomic(false)
        Thread.detachNewThread {
          finish(.success((0..<count).map { $0 }))
          hasFinished.store(true, ordering: .relaxed)
        }
        while !hasFinished.load(ordering: .relaxed) { sched_yield() }
      }
      #expect(numbers.reduce(0, +) == count * (count - 1) / 2)
    }
  }
}
