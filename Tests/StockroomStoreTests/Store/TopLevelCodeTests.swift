import Foundation
import StockroomKitSupport
import TestFixtures
import Testing

/// Which initializer Swift picks where, as the compiler says it.
@Suite("A store at the top level of a program") struct TopLevelCodeTests {
  private static let modules = BuiltModules.directory

  /// What the compiler has to say of the code, as the main file of a program.
  private func errors(in code: String) async throws -> String {
    let directory = try TemporaryDirectory()
    let file = directory.url.appending(path: "main.swift")
    let preamble = """
      import StockroomMemory
      import StockroomStore
      struct Note: Codable, Sendable, Identifiable { var id: String }

      """
    try (preamble + code).write(to: file, atomically: true, encoding: .utf8)
    let compiler = try await ProgramOutput(
      of: ["/usr/bin/env", "swiftc", "-typecheck", "-swift-version", "6"]
        + BuiltModules.compilerArguments(in: #require(Self.modules)) + [file.path()])
    #expect(compiler.errorText.contains("error:") != compiler.isSuccess)
    return compiler.errorText
  }

  @Test("`try await Store(…)` does not compile there, since it would not load", .enabled(if: modules != nil))
  func awaited() async throws {
    for arguments in [
      "storage: MemoryStorageEngine()", "storage: MemoryStorageEngine(), cacheIdentifier: \\.id",
    ] {
      let text = try await errors(in: "let store = try await Store<Note>(\(arguments))\nprint(store.items)")
      #expect(text.contains("unavailable from asynchronous contexts"))
      #expect(text.contains("Store(loadingInBackground:)"))
    }
  }

  @Test(
    "The async initializers compile in functions and closures, and so do those in the background",
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
