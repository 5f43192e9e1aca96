import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("Bounds on resources")
struct ResourceSnapshotTests {
  /// Regression: on a machine with many processors, threads that the pools had not started before looked like a leak.
  @Test("Threads that pools start later, up to some for each processor, are within the bound")
  func threadsOfPools() {
    let (first, later) = (ResourceSnapshot(threads: 20), ResourceSnapshot(threads: 20 + 2 * 128))
    func growth(processors: Int) -> String? {
      later.growth(since: first, files: true, fileSize: true, memory: true, processors: processors)
    }
    #expect(growth(processors: 128) == nil)
    #expect(growth(processors: 16) != nil)
  }

  /// Regression: a server that accepts a hundred connections refused some of 64 engines.
  @Test("With a server, at most 16 engines are opened, however many processors there are")
  func enginesWithServer() {
    #expect(engineCount(processors: 64, isNetworked: true) == 16)
    #expect(engineCount(processors: 64, isNetworked: false) == 64)
    #expect(engineCount(processors: 2, isNetworked: true) == 2)
  }

  /// Regression: four more descriptors than at first were too many.
  @Test(
    "Descriptors that a process opens once during openings that throw do not count as a leak", .ownThreads)
  func descriptorsMadeOnce() async {
    // In a separate process, since other tests open files.
    await #expect(processExitsWith: .success) {
      let opened = AtomicCounter()
      let directory = try TemporaryDirectory()
      defer { withExtendedLifetime(directory) {} }
      try await FailedOpenings(place: directory.url, count: 100).check(
        makeEngine: { place in
          if (10..<18).contains(opened.increment()) { _ = open("/dev/null", O_RDONLY) }
          throw StorageError(.corrupted, "\(place.path) is corrupted.")
        }, note: { _ in })
    }
  }
}
