#if os(Linux) && (arch(x86_64) || arch(arm64))
  import Foundation
  import StockroomCore
  import TestFixtures
  import Testing

  @testable import ConformanceKit

  // Filters are installed in separate processes, because they cannot be removed. If the kernel does not allow them,
  // there is nothing to test.
  @Suite("A listener for the calls of a process")
  struct SystemCallListenerTests {
    @Test("Calls of the answering thread are not intercepted", .ownThreads)
    func ownCalls() async {
      await #expect(processExitsWith: .success) {
        // Without an answer it would wait forever.
        alarm(600)
        do {
          let listener = try SystemCallListener { _, _ in
            let file = open("/dev/null", O_RDONLY | O_CLOEXEC)
            return file >= 0 && close(file) == 0 ? .failure(EXDEV) : .proceed
          }
          listener.listen(to: try SystemCallFilter(of: [.open, .openat]))
        } catch is Skip {
          exit(EXIT_SUCCESS)
        }
        let file = open("/dev/null", O_RDONLY | O_CLOEXEC)
        exit(file < 0 && errno == EXDEV ? EXIT_SUCCESS : EXIT_FAILURE)
      }
    }

    @Test("A call of each thread is answered exactly once", .ownThreads)
    func manyThreads() async {
      await #expect(processExitsWith: .success) {
        alarm(600)
        let (threads, calls) = (40, 100)
        do {
          let answers = MutexProtected(0)
          let listener = try SystemCallListener { request, _ in
            .result(
              answers.withLock { answers in
                answers += 1
                return 1_000_000 + answers
              })
          }
          listener.listen(to: try SystemCallFilter(of: [.mkdir, .mkdirat]))
        } catch is Skip {
          exit(EXIT_SUCCESS)
        }
        let results = MutexProtected<Set<Int32>>([])
        DispatchQueue.concurrentPerform(iterations: threads) { _ in
          for _ in 0..<calls {
            let result = mkdir("/dev/null", 0o700)
            results.withLock { _ = $0.insert(result) }
          }
        }
        exit(results.withLock { $0.count } == threads * calls ? EXIT_SUCCESS : EXIT_FAILURE)
      }
    }

    @Test("Freeing memory makes no intercepted call", .ownThreads, .disabled(if: System.hasThreadSanitizer))
    func freeing() async {
      await #expect(processExitsWith: .success) {
        alarm(600)
        do {
          let listener = try SystemCallListener { _, _ in exit(EXIT_FAILURE) }
          listener.listen(to: try SystemCallFilter(of: [.open, .openat]))
        } catch is Skip {
          exit(EXIT_SUCCESS)
        }
        // On a new thread, which uses a separate memory arena.
        Thread.detachNewThread {
          let blocks = (0..<1_500).map { _ in malloc(100_000) }
          for block in blocks.reversed() { free(block) }
          exit(EXIT_SUCCESS)
        }
        while true { sleep(1) }
      }
    }

    @Test("The memory of a caller is copied up to the end of the mapping, and is empty where there is none")
    func memory() throws {
      let memory = CallerMemory(try RawSystemCall.required())
      let size = Int(getpagesize())
      let pages = try #require(
        mmap(nil, 3 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
      try #require(pages != MAP_FAILED)
      defer { munmap(pages, 3 * size) }
      memset(pages, 0x61, 2 * size)
      try #require(mprotect(pages + 2 * size, size, PROT_NONE) == 0)
      func address(_ offset: Int) -> UInt64 { UInt64(UInt(bitPattern: pages + offset)) }

      // A path that ends at the end of a page, and one that crosses it.
      (pages + 2 * size - 1).storeBytes(of: 0, as: UInt8.self)
      #expect(memory.path(at: address(2 * size - 4)) == Array("aaa".utf8))
      (pages + size + 2).storeBytes(of: 0, as: UInt8.self)
      #expect(memory.path(at: address(size - 3)) == Array("aaaaa".utf8))
      #expect(memory.bytes(at: address(size - 2), count: 5) == [0x61, 0x61, 0x61, 0x61, 0])
      #expect(memory.bytes(at: address(2 * size), count: 8) == [])
      #expect(memory.path(at: address(2 * size)) == [])
      #expect(memory.bytes(at: 0, count: 8) == [])
    }
  }
#endif
