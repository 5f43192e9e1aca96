#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomFileSystem
  import TestFixtures
  import Testing

  @testable import ConformanceKit

  @Suite("File descriptor exhaustion")
  struct DescriptorExhaustionTests {
    @Test(
      "A removal that has found its file needs no more descriptors to remove its directories", .ownThreads)
    func removal() async {
      // In a separate process, because the limit applies to the process.
      await #expect(processExitsWith: .success) {
        let place = try TemporaryDirectory()
        // Six directories deep.
        let key = CacheKey(verbatim: String(repeating: " ", count: 511))
        let engine = try DiskStorageEngine(directory: place.directory)
        try await engine.write(Data([1]), key: key)
        let hold = try DescriptorHold(leaving: 2)
        try await engine.remove(key: key)
        hold.release()
        try #require(try await engine.read(key: key) == nil)
        let names = try FileManager.default.contentsOfDirectory(atPath: place.url.path)
        try #require(names == [".stockroom"])
        try await engine.close()
      }
    }
  }
#endif
