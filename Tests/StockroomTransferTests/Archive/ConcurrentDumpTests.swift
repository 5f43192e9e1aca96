import Foundation
import StockroomCore
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Dumps to one name at the same time") struct ConcurrentDumpTests {
  @Test("Of two dumps to one new name one makes it, as a whole, and the other throws and leaves nothing")
  func newName() async throws {
    let place = try TemporaryDirectory()
    try await expectOneWinner(in: place.url)
  }

  #if os(Linux) && (arch(x86_64) || arch(arm64))
    @Test(
      "Of two dumps to one new name one makes it on file systems without hard links too", .ownThreads,
      .enabled(if: HardLinks.canBeForbidden, "Refusing system calls is forbidden here."))
    func withoutHardLinks() async throws {
      let place = try TemporaryDirectory()
      await #expect(processExitsWith: .success) { [path = place.url.path as String] in
        try HardLinks.forbid()
        try await expectOneWinner(in: URL(filePath: path))
      }
      #expect(try names(in: place.url) == ["archive"])
    }
  #endif

  @Test("Of two dumps that may replace what is there the last one stays, as a whole")
  func replacing() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let results = await dumpTwice(to: archive, replacing: true)
    let summaries = try results.map { try $0.get() }
    #expect(summaries.count == 2)
    #expect(try names(in: place.url) == ["archive"])
    let restored = MemoryStorageEngine()
    #expect(summaries.contains(try await restored.restore(from: archive)))
  }
}

/// Expects that one of two dumps makes the archive, and that nothing but that is in the directory.
private func expectOneWinner(in directory: URL) async throws {
  let archive = directory.appending(path: "archive")
  let results = await dumpTwice(to: archive, replacing: false)
  var winners: [Int] = []
  for (number, result) in results.enumerated() {
    switch result {
    case .success: winners.append(number)
    case .failure(let error): #expect((error as? StorageError)?.code == .unsupported, "\(error)")
    }
  }
  try #require(winners.count == 1)
  #expect(try names(in: directory) == ["archive"])
  let restored = MemoryStorageEngine()
  #expect(try await restored.restore(from: archive) == results[winners[0]].get())
  #expect(try await restored.allKeys() == [key("of \(winners[0])")])
}

/// Dumps two engines to one file. Both have found the name free and written their entries before either renames its
/// file.
private func dumpTwice(to archive: URL, replacing: Bool) async -> [Result<ArchiveSummary, any Error>] {
  let gate = ThreadGate()
  let dumps = (0..<2).map { number in
    Task {
      defer { gate.finish() }
      let engine = MemoryStorageEngine()
      try await engine.write(Data("\(number)".utf8), key: key("of \(number)"))
      return try await engine.dump(to: archive, replacing: replacing) { _ in gate.wait() }
    }
  }
  await gate.waitForArrivals(2)
  gate.open()
  var results: [Result<ArchiveSummary, any Error>] = []
  for dump in dumps { results.append(await dump.result) }
  return results
}
