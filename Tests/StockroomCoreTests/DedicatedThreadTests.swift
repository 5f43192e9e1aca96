import Foundation
import StockroomCore
import Testing

#if canImport(Glibc)
  import Glibc
#endif

@Suite struct DedicatedThreadTests {
  @Test("Stopping the thread first runs the waiting jobs")
  func stop() throws {
    let thread = DedicatedThread()
    let done = MutexProtected(0)
    for _ in 0..<100 { try thread.enqueue { done.withLock { $0 += 1 } } }
    thread.stop()
    #expect(done.withLock { $0 } == 100)
    #expect(throws: StorageError.self) { try thread.enqueue {} }
    thread.stop()
  }

  @Test("A job may stop its own thread")
  func stopFromWithin() async throws {
    let thread = DedicatedThread()
    try await thread.run { thread.stop() }
    await #expect(throws: StorageError.self) { try await thread.run {} }
  }

  @Test("An error thrown by a job is thrown to its caller")
  func failure() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    await #expect(throws: Refused.self) { try await thread.run { throw Refused() } }
    #expect(try await thread.run { 7 } == 7)
  }

  #if canImport(Glibc)
    @Test("The stack of the thread has 1 MiB, and not the default size of the system")
    func stackSize() async throws {
      let thread = DedicatedThread()
      defer { thread.stop() }
      let size = try #require(try await thread.run { stackSizeOfCurrentThread() })
      #expect(size >= 1 << 20)
      // The default is usually 8 MiB. Glibc reuses the stack of an ended thread of up to four times the size.
      #expect(size < 6 << 20)
    }
  #endif
}

#if canImport(Glibc)
  /// The size of the stack on which the caller runs; nil if it cannot be determined.
  private func stackSizeOfCurrentThread() -> Int? {
    // An extension of GNU, which Swift's module does not contain.
    typealias GetAttributes = @convention(c) (pthread_t, UnsafeMutablePointer<pthread_attr_t>) -> Int32
    guard let symbol = dlsym(nil, "pthread_getattr_np") else { return nil }
    let getAttributes = unsafeBitCast(symbol, to: GetAttributes.self)
    var attributes = pthread_attr_t()
    guard getAttributes(pthread_self(), &attributes) == 0 else { return nil }
    defer { pthread_attr_destroy(&attributes) }
    var size = 0
    return pthread_attr_getstacksize(&attributes, &size) == 0 ? size : nil
  }
#endif

private struct Refused: Error {}
