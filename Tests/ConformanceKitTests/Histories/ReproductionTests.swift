import ConformanceKit
import Foundation
import StockroomCore
import Testing

@Suite("The reproduction of a history")
struct ReproductionTests {
  @Test("is a test as one writes it by hand")
  func readsWell() async throws {
    let piece = try #require(HistoryPiece.all.first { $0.piece.name.hasPrefix("forgets overwrites") }).piece
    let failure = try #require(await piece.firstConviction(of: "histories.batches"))
    let source = try #require(failure.source).replacing(/[Ss]eed ?\d+/, with: "Seed1")
      .replacing(/by histories\.[a-z-]+/, with: "by histories")
    #expect(
      source == """
        import Foundation
        import StockroomCore
        import Testing

        // Found by histories with Seed1.
        @Test("A history that breaks rule W5 of the contract")
        func historyOfSeed1() async throws {
          let directory = FileManager.default.temporaryDirectory.appending(path: "history-\\(UUID().uuidString)")
          defer { try? FileManager.default.removeItem(at: directory) }
          let a = CacheKey(verbatim: "a")
          let engine = try await openEngine(directory)
          try await engine.write(Data("1".utf8), key: a)
          try await engine.apply([.remove(key: a), .write(Data("2".utf8), key: a)])
          #expect(try await engine.read(key: a) == Data("2".utf8))
        }

        /// Opens the engine. Put your own here.
        private func openEngine(_ directory: URL) async throws -> any StorageEngine {
          try MyEngine(directory: directory)
        }
        """)
  }

  @Test("waits where only a busy machine takes the time that makes it fail")
  func waits() async throws {
    let piece = try #require(HistoryPiece.all.first { $0.piece.name == "freezes times in batches" }).piece
    let busy = MuseumPiece(piece.rule, piece.name) { base in
      let engine = FailingStorageEngine(FreezesTimesInBatches(base: base))
      engine.failEveryCall { _ in
        usleep(10_000)
        return false
      }
      return engine
    }
    let failure = try #require(await busy.firstConviction(of: "histories.batches"))
    let source = try #require(failure.source)
    #expect(source.contains("Task.sleep"), "\(source)")
  }

  #if os(Linux)
    @Test("compiles, and fails if the engine is broken, and only then, for every kind of fault")
    func compilesAndFails() async throws {
      let directory = FileManager.default.temporaryDirectory.appending(
        path: "reproductions-\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(at: directory) }

      var count = 0
      for (index, exhibit) in HistoryPiece.all.enumerated() {
        // What depends on the clock need not happen again each time, and then has no reproduction.
        var source = try #require(await HistoryFailures.shared.failure(of: exhibit)).source
        for _ in 0..<10 where source == nil {
          source = try #require(await exhibit.piece.firstConviction(exhibit.effort)).source
        }
        try paste(try #require(source), forPiece: index)
          .write(
            to: directory.appending(path: "Reproduction\(index).swift"), atomically: true, encoding: .utf8)
        count += 1
      }
      let runner = """
        import Testing
        @main struct Runner {
          static func main() async { await Testing.__swiftPMEntryPoint() as Never }
        }
        """
      try runner.write(to: directory.appending(path: "Runner.swift"), atomically: true, encoding: .utf8)

      let compiled = try await run("swiftc", try compilation(in: directory), in: directory)
      #expect(compiled.status == 0 && !compiled.output.contains("warning:"), "\(compiled.output)")
      let tests = directory.appending(path: "tests").path
      let arguments = ["--testing-library", "swift-testing", "--filter", "historyOfPiece"]
      let broken = try await run(tests, arguments, in: directory)
      let correct = try await run(tests, arguments, in: directory, environment: ["CORRECT": "1"])
      #expect(correct.status == 0, "\(correct.output)")
      for index in 0..<count {
        #expect(broken.output.contains(try Regex("Test \"\(index): [^\"]*\" failed")), "\(broken.output)")
        #expect(correct.output.contains(try Regex("Test \"\(index): [^\"]*\" passed")), "\(correct.output)")
      }
    }

    /// What an author of an engine does: puts the own engine in its place, and here also gives the test a name that none
    /// of the others has.
    private func paste(_ source: Substring, forPiece index: Int) -> String {
      "@testable import ConformanceKitTests\n"
        + source
        .replacing(
          "try MyEngine(directory: directory)",
          with: """
            try await ProcessInfo.processInfo.environment["CORRECT"] == nil
              ? MuseumPiece.ofHistories[\(index)].makeEngine(directory) : ReferenceEngine(directory: directory)
            """
        )
        .replacing("@Test(\"A history", with: "@Test(\"\(index): A history")
        .replacing(/historyOfSeed\d+/, with: "historyOfPiece\(index)")
    }

    /// Against the modules that the build of these tests has left beside them.
    private func compilation(in directory: URL) throws -> [String] {
      let products = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
      let modules = [
        "StockroomCore", "StockroomStore", "ConformanceKit", "MuseumChild", "ConformanceKitTests",
      ]
      let objects = try modules.flatMap {
        module in
        // Objects of sources that are gone may lie there as well, so the list of sources is what counts.
        let folder = products.appending(path: "\(module).build")
        return try String(contentsOf: folder.appending(path: "sources"), encoding: .utf8).split(
          separator: "\n"
        )
        .compactMap { $0.split(separator: "/").last }.filter { $0.hasSuffix(".swift") }
        .map { folder.appending(path: "\($0).o").path }
      }
      let sources = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
      return [
        "-swift-version", "6", "-parse-as-library", "-whole-module-optimization", "-Onone", "-I",
        products.appending(path: "Modules").path,
      ]
        + ["-o", "tests"] + sources + objects
    }

    /// Runs a program to its end on a thread of its own.
    private func run(
      _ program: String, _ arguments: [String], in directory: URL, environment: [String: String] = [:]
    ) async throws -> (status: Int32, output: String) {
      try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread {
          continuation.resume(
            with: Result {
              let process = Process()
              process.executableURL = URL(filePath: "/usr/bin/env")
              process.arguments = [program] + arguments
              process.currentDirectoryURL = directory
              process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
              let pipe = Pipe()
              (process.standardOutput, process.standardError) = (pipe, pipe)
              try process.run()
              let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
              process.waitUntilExit()
              return (process.terminationStatus, String(decoding: output, as: UTF8.self))
            })
        }
      }
    }
  #endif
}
