#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A store that was filled and closed, of which copies can be damaged.
struct ClosedStore {
  let context: CheckContext
  let directory: URL
  let entries: [(key: CacheKey, data: Data)]
  /// The engine's files, relative to the directory.
  let files: [String]

  /// Fills an engine with small and large values, one by one and in a batch, and closes it.
  init(in context: CheckContext, at directory: URL? = nil) async throws {
    self.context = context
    self.directory = directory ?? context.place
    entries = keys(40).enumerated().map { ($0.element, noise($0.offset * 97 + 20, seed: UInt64($0.offset))) }
    let engine = try await context.open(self.directory)
    for entry in entries.prefix(30) { try await engine.write(entry.data, key: entry.key) }
    try await engine.write(Array(entries.suffix(10)))
    try await context.close(engine)
    files = try DirectoryContents(of: self.directory).files.filter { $0.value != nil }.keys.sorted()
  }

  /// A directory that does not exist, beside the store.
  func newDirectory() -> URL {
    context.root.appending(path: "store-\(UUID().uuidString)", directoryHint: .isDirectory)
  }

  /// A copy of the store after `change` has had its way with it.
  func copy(_ change: (URL) throws -> Void) throws -> URL {
    let copy = newDirectory()
    try FileManager.default.copyItem(at: directory, to: copy)
    try change(copy)
    return copy
  }

  /// The files without which entries are missing.
  func filesThatMatter() async throws -> [String] {
    var files: [String] = []
    for file in self.files {
      let copy = try copy { try FileManager.default.removeItem(at: $0.appending(path: file)) }
      if !(await isComplete(copy)) { files.append(file) }
    }
    return files
  }

  private func isComplete(_ directory: URL) async -> Bool {
    do {
      let engine = try await context.open(directory)
      var isComplete = true
      for entry in entries where try await engine.read(key: entry.key) != entry.data { isComplete = false }
      try await context.close(engine)
      return isComplete
    } catch {
      return false
    }
  }
}
