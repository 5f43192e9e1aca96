#if os(Linux)
  import Foundation
  import StockroomCore
  import TestFixtures
  import StockroomEngines
  import Testing

  /// Engines are opened and closed over and over, in a process of its own so that nothing else opens anything.
  /// `STOCKROOM_OPENINGS` says how often, for a long run by hand.
  @Suite(.serialized) struct OpeningAndClosingTests {
    @Test("Opened and closed engines leave nothing behind", arguments: EngineCatalogue.all.map(\.name))
    func leavesNothing(name: String) async {
      await #expect(processExitsWith: .success) { [name] in
        let times = ProcessInfo.processInfo.environment["STOCKROOM_OPENINGS"].flatMap { Int($0) } ?? 300
        let directory = try TemporaryDirectory()
        let engine = try EngineCatalogue.select([name])[0]
        var before = try Resources()
        for opening in 0..<times {
          // The first hundred fill the caches of the C library and of the runtime.
          if opening == 100 { before = try Resources() }
          try await Self.useOnce(engine, directory: directory.url, closing: opening % 2 == 0)
        }
        let after = try Resources()
        // What each opening leaves behind adds up; what the runtime opens once, whenever it does, does not.
        try #require(after.descriptors < before.descriptors + 10, "\(before) \(after)")
        try #require(after.threads < before.threads + 10, "\(before) \(after)")
        // A kilobyte for each opening would be a leak; what the allocator keeps does not grow with their number.
        try #require(after.memory - before.memory < max(16 << 20, times << 10), "\(before) \(after)")
      }
    }

    /// Opens an engine, writes and reads, and closes it or only lets go of it.
    static func useOnce(_ entry: EngineCatalogue.Entry, directory: URL, closing: Bool) async throws {
      let engine = try entry.open(directory, .process)
      let key = CacheKey(verbatim: "key")
      try await engine.write(Data([1]), key: key)
      try #require(try await engine.read(key: key) == Data([1]))
      if closing { try await engine.close() }
    }
  }

  /// What the process holds at the moment.
  private struct Resources: CustomStringConvertible {
    let descriptors: Int
    let threads: Int
    /// Resident, in bytes.
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
