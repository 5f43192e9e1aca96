#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomKitSupport
  import Testing

  @testable import BenchmarkKit

  /// A run whose files cannot be removed afterwards.
  @Suite(.enabled(if: canMakeImmutable, "Making a file immutable needs a right that this process lacks."))
  struct LeftoverTests {
    @Test(
      "A failed run reports what it cannot remove with the error that ended it", arguments: [false, true])
    func leftover(opens: Bool) async throws {
      let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "leftover-tests")
      let made = MutexProtected<URL?>(nil)
      let subject = BenchmarkSubject("a") { directory in
        let file = directory.appending(path: "immutable")
        try Data().write(to: file)
        try setImmutable(true, file)
        made.withLock { $0 = file }
        if opens { return SpyEngine(flaw: .failsToClose) }
        throw StorageError(.io, "It cannot be opened.")
      }
      let runner = BenchmarkRunner(
        configuration: BenchmarkConfiguration(
          entries: 1, workloads: Workload.named("count") ?? [], directory: scratch.url))
      let error = await #expect(throws: BenchmarkError.self) { try await runner.run([subject]) }
      let description = try #require(error).description
      #expect(description.contains("Removing the directory \(scratch.url.path(percentEncoded: false))"))
      #expect(description.contains(opens ? "The spy does not close." : "It cannot be opened."))
      try setImmutable(false, try #require(made.withLock { $0 }))
      try scratch.remove()
    }
  }

  private func setImmutable(_ isImmutable: Bool, _ file: URL) throws {
    let path = file.path(percentEncoded: false)
    let output = try ProgramOutput(waitingFor: ["/usr/bin/env", "chattr", isImmutable ? "+i" : "-i", path])
    guard output.isSuccess else { throw StorageError(.unsupported, "chattr \(path) \(output.explanation)") }
  }

  private let canMakeImmutable: Bool = {
    do {
      let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "immutable")
      let file = scratch.url.appending(path: "file")
      try Data().write(to: file)
      try setImmutable(true, file)
      try setImmutable(false, file)
      try scratch.remove()
      return true
    } catch {
      return false
    }
  }()
#endif
