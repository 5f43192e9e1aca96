import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import StockroomTestSupport
import StockroomKitSupport
import TestFixtures
import Testing

@Suite("The reproduction of a failing sequence")
struct ReproductionTests {
  @Test("A reproduction looks like a handwritten test")
  func readsWell() async throws {
    let engineCase = try #require(
      ModelBasedCase.all.first { $0.engineCase.name.hasPrefix("forgets overwrites") }
    ).engineCase
    let failure = try #require(await engineCase.firstFailure(of: "model.batches"))
    let source = try #require(failure.source).replacing(/[Ss]eed ?\d+/, with: "Seed1")
      .replacing(/by model\.[a-z-]+/, with: "by model")
    #expect(
      source == """
        import Foundation
        import StockroomCore
        import Testing

        // Found by model with Seed1.
        @Test("Calls that break rule W5 of the contract")
        func reproductionOfSeed1() async throws {
          let directory = FileManager.default.temporaryDirectory.appending(path: "sequence-\\(UUID().uuidString)")
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

  @Test("A reproduction waits where it would only fail on a busy machine")
  func waits() async throws {
    let engineCase = try #require(
      ModelBasedCase.all.first { $0.engineCase.name == "freezes times in batches" }
    ).engineCase
    let busy = FaultyEngineCase(engineCase.rule, engineCase.name) { base in
      let engine = FailingStorageEngine(FreezesTimesInBatches(base: base))
      engine.failEveryCall { _ in
        usleep(10_000)
        return false
      }
      return engine
    }
    let failure = try #require(await busy.firstFailure(of: "model.batches"))
    let source = try #require(failure.source)
    #expect(source.contains("Task.sleep"), "\(source)")
  }

  #if os(Linux)
    @Test("Every reproduction compiles, fails on the faulty engine and passes on a correct one")
    func compilesAndFails() async throws {
      let directory = FileManager.default.temporaryDirectory.appending(
        path: "reproductions-\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(at: directory) }

      var count = 0
      for (index, testCase) in ModelBasedCase.all.enumerated() {
        // A failure that depends on the clock may not recur, and then has no reproduction.
        var source = try #require(await ModelBasedFailures.shared.failure(of: testCase)).source
        for _ in 0..<10 where source == nil {
          source = try #require(await testCase.engineCase.firstFailure(testCase.budget)).source
        }
        try paste(try #require(source), forCase: index)
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
      try #require(compiled.isSuccess && !compiled.output.contains("warning:"), "\(compiled.output)")
      let tests = directory.appending(path: "tests").path
      let arguments = ["--testing-library", "swift-testing", "--filter", "sequenceOfCase"]
      let broken = try await run(tests, arguments, in: directory)
      let correct = try await run(tests, arguments, in: directory, environment: ["CORRECT": "1"])
      #expect(correct.isSuccess, "\(correct.output)")
      for index in 0..<count {
        #expect(broken.output.contains(try Regex("Test \"\(index): [^\"]*\" failed")), "\(broken.output)")
        #expect(correct.output.contains(try Regex("Test \"\(index): [^\"]*\" passed")), "\(correct.output)")
      }
    }

    /// Simulates the author of an engine: inserts the engine, and here also renames the test to a unique name.
    private func paste(_ source: Substring, forCase index: Int) -> String {
      "@testable import ConformanceKitTests\n@testable import FaultyEngineWorker\n"
        + source
        .replacing(
          "try MyEngine(directory: directory)",
          with: """
            let engineCase = FaultyEngineCase.ofHistories[\(index)]
            return try await ProcessInfo.processInfo.environment["CORRECT"] == nil
              ? engineCase.makeEngine(directory) : engineCase.makeCorrectEngine(directory)
            """
        )
        .replacing("@Test(\"Calls", with: "@Test(\"\(index): Calls")
        .replacing(/reproductionOfSeed\d+/, with: "sequenceOfCase\(index)")
    }

    /// Compiles against the modules next to the build of these tests.
    private func compilation(in directory: URL) throws -> [String] {
      let products = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
      let modules = [
        "InternalCollectionsUtilities", "HashTreeCollections", "StockroomCore", "StockroomMemory",
        "StockroomStore",
        "StockroomTestSupport", "StockroomKitSupport", "ConformanceKit", "TestFixtures", "FaultyEngineWorker",
        "ConformanceKitTests",
      ]
      let objects = try modules.flatMap {
        module in
        // The directory may contain objects of removed sources, so the list of sources determines them.
        let folder = products.appending(path: "\(module).build")
        return try String(contentsOf: folder.appending(path: "sources"), encoding: .utf8).split(
          separator: "\n"
        )
        .compactMap { $0.split(separator: "/").last?.replacing("'", with: "") }.filter {
          $0.hasSuffix(".swift")
        }
        .map { folder.appending(path: "\($0).o").path }
      }
      let sourcesInC = URL(filePath: #filePath).appending(path: "../../../../Sources/StockroomCSupport")
        .standardized
      let support = try FileManager.default.contentsOfDirectory(atPath: sourcesInC.path).filter {
        $0.hasSuffix(".c")
      }
      .map { products.appending(path: "StockroomCSupport.build/\($0).o").path }
      let sources = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
      return [
        "-swift-version", "6", "-parse-as-library", "-whole-module-optimization", "-Onone",
      ] + BuiltModules.compilerArguments(in: products.appending(path: "Modules"))
        + ["-o", "tests"] + sources + objects + support
    }

    /// Runs a program to its end.
    private func run(
      _ program: String, _ arguments: [String], in directory: URL, environment: [String: String] = [:]
    ) async throws -> (isSuccess: Bool, output: String) {
      let settings = environment.map { "\($0)=\($1)" }
      let ended = try await ProgramOutput(
        of: ["/usr/bin/env"] + settings + [program] + arguments, in: directory)
      return (ended.isSuccess, ended.text + ended.errorText)
    }
  #endif
}

extension FaultyEngineCase {
  /// A correct engine with the same claims.
  func makeCorrectEngine(_ place: URL) throws -> any StorageEngine {
    capabilities.contains(.preservesTimestamps)
      ? KeptInMemory(place) : try ReferenceEngine(directory: place, claiming: capabilities)
  }
}
