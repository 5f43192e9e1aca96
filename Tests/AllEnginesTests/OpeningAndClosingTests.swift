#if os(Linux)
  import Foundation
  import StockroomCore
  import TestFixtures
  import StockroomEngines
  import Testing

  /// Opens and closes engines repeatedly, in a separate process where nothing else opens files. The
  /// environment variable `STOCKROOM_OPENINGS` sets the count for a long manual run.
  @Suite(.serialized) struct OpeningAndClosingTests {
    @Test(
      "Opening and closing engines leaks no descriptors, threads or memory", .ownThreads,
      arguments: EngineCatalog.onThisMachine.map(\.name))
    func leavesNothing(name: String) async {
      await #expect(processExitsWith: .success) { [name] in
        let times = ProcessInfo.processInfo.environment["STOCKROOM_OPENINGS"].flatMap { Int($0) } ?? 100
        let directory = try TemporaryDirectory()
        let engine = try EngineCatalog.select([name])[0]
        var before = try Resources()
        for opening in 0..<times {
          // The first openings fill caches of the C library and the runtime.
          if opening == 40 { before = try Resources() }
          try await Self.useOnce(engine, directory: directory.url, closing: opening % 2 == 0)
        }
        let after = try Resources()
        // A leak per opening adds up to at least 30; what the runtime opens once does not.
        try #require(after.descriptors < before.descriptors + 10, "\(before) \(after)")
        try #require(after.threads < before.threads + 10, "\(before) \(after)")
        // A leak is at least a kilobyte per opening; the allocator's own memory does not grow with the count.
        try #require(after.memory - before.memory < max(16 << 20, times << 10), "\(before) \(after)")
      }
    }

    /// Opens an engine, writes and reads, then closes it or only releases it.
    static func useOnce(_ entry: EngineCatalog.Entry, directory: URL, closing: Bool) async throws {
      let engine = try await entry.open(directory, .process)
      let key = CacheKey(verbatim: "key")
      try await engine.write(Data([1]), key: key)
      try #require(try await engine.read(key: key) == Data([1]))
      if closing { try await engine.close() }
    }
  }

  /// The resource usage of this process.
  private struct Resources: CustomStringConvertible {
    let descriptors: Int
    let threads: Int
    /// Resident memory, in bytes.
    let memory: Int

    init() throws {
      descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
      threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count
      let sizes = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")
      memory = (sizes.count > 1 ? Int(sizes[1]) ?? 0 : 0) * Int(sysconf(Int32(_SC_PAGESIZE)))
    }

    var description: String { "\(descriptors) descriptors, \(threads) threads, \(memory >> 10) KiB" }
  }
#endif
