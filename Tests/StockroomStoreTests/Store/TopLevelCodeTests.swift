import Foundation
import StockroomKitSupport
import TestFixtures
import Testing

/// Which initializer Swift selects in each context, tested with the compiler.
@Suite("A store at the top level of a program") struct TopLevelCodeTests {
  private static let modules = BuiltModules.directory

  /// The compiler's errors for the code as the main file of a program.
  private func errors(in code: String) async throws -> String {
    let directory = try TemporaryDirectory()
    let file = directory.url.appending(path: "main.swift")
    let preamble = """
      import Foundation
      import Stockroom
      import StockroomMemory
      struct Note: Codable, Sendable, Identifiable { var id: String }
      struct Mark: Codable, Sendable, Identifiable { var id: UUID }

      """
    try (preamble + code).write(to: file, atomically: true, encoding: .utf8)
    let compiler = try await ProgramOutput(
      of: ["/usr/bin/env", "swiftc", "-typecheck", "-swift-version", "6"]
        + BuiltModules.compilerArguments(in: #require(Self.modules)) + [file.path()])
    #expect(compiler.errorText.contains("error:") != compiler.isSuccess)
    return compiler.errorText
  }

  @Test(
    "`try await Store(…)` does not compile at the top level, because it would not load",
    .enabled(if: modules != nil))
  func awaited() async throws {
    let stores = [
      "Note>(storage: MemoryStorageEngine())", "Mark>(storage: MemoryStorageEngine())",
      "Note>(storage: MemoryStorageEngine(), cacheIdentifier: \\.id)", "Note>()", "Mark>()",
      "Note>(cacheIdentifier: \\.id)",
      "Note>(storagePath: URL(filePath: \"notes\"), cacheIdentifier: \\.id)",
    ]
    let lines = stores.enumerated().map { "let store\($0) = try await Store<\($1)" }
    let text = try await errors(in: lines.joined(separator: "\n"))
    let refusals = text.split(separator: "\n").filter { $0.contains(#/^.*main\.swift:\d+:\d+: error: /#) }
    #expect(refusals.count == stores.count)
    for refusal in refusals {
      #expect(refusal.contains("unavailable from asynchronous contexts"))
      #expect(refusal.contains("Store(loadingInBackground:)"))
    }
  }

  @Test(
    "The asynchronous initializers compile in functions and closures, and so do the background ones",
    .enabled(if: modules != nil))
  func elsewhere() async throws {
    let text = try await errors(
      in: """
        func open() async throws -> Store<Note> { try await Store(storage: MemoryStorageEngine()) }
        @MainActor func openInBackground() -> Store<Note> { Store(storage: MemoryStorageEngine()) }
        extension Store where Item == Note { static let notes = Store<Note>(storage: MemoryStorageEngine()) }
        @MainActor struct View { var store = Store<Note>(storage: MemoryStorageEngine()) }
        @MainActor func show(_ store: Store<Note> = Store(storage: MemoryStorageEngine())) {}
        let one = try await open()
        let two = try await Task { try await Store<Note>(storage: MemoryStorageEngine()) }.value
        let three = Store<Note>(loadingInBackground: MemoryStorageEngine())
        try await three.itemsHaveLoaded()
        """)
    #expect(text.isEmpty)
  }
}
