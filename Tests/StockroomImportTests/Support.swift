import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import TestFixtures
import Testing

struct Note: Codable, Sendable, Hashable, Identifiable {
  var id: String
  var text: String
  var number = 0.1
  var createdAt = Date(timeIntervalSinceReferenceDate: 1.5)
  var url: URL? = URL(string: "https://www.example.com/a%20b?c=d")

  /// The bytes that Boutique stores: those of a plain `JSONEncoder`.
  func encoded() throws -> Data { try JSONEncoder().encode(self) }
}

extension Note {
  /// Identifiers of every kind, in the order of creation, which is not that of the keys.
  static let all = [
    Note(id: "zebra", text: "first"), Note(id: "apple", text: "second"),
    Note(id: "user/../42 é e\u{301} 🐼", text: ""),
    Note(id: String(repeating: "long ", count: 120), text: "long"),
    Note(id: "9C4A6B1E-2A33-4E0C-9C1B-1B5B0C6B7A10", text: "a UUID"), Note(id: "7", text: "7"),
  ]
}

/// An engine in memory that records the entries passed to `writeEntries(_:)`, and writes them without their times.
final class RecordingEngine: MinimalForwardingEngine {
  let base: any StorageEngine = MemoryStorageEngine()
  private let recorded = MutexProtected<[[StorageEntry]]>([])
  /// Applied to each value before it is written.
  private let change: @Sendable (Data) -> Data

  init(change: @escaping @Sendable (Data) -> Data = { $0 }) { self.change = change }

  var batches: [[StorageEntry]] { recorded.withLock { $0 } }
  var entries: [StorageEntry] { batches.flatMap(\.self) }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    recorded.withLock { $0.append(entries) }
    try await base.write(entries.map { (key: $0.key, data: change($0.data)) })
  }
}

/// The observable state of a directory, except for access times.
struct DirectorySnapshot: Equatable {
  struct File: Equatable {
    var bytes: Data?
    var size: Int
    var modified: Timestamp
    var changed: Timestamp
    var identity: FileIdentity
  }

  var files: [String: File] = [:]

  init(_ url: URL) throws {
    let path = url.path(percentEncoded: false)
    for name in try FileManager.default.subpathsOfDirectory(atPath: path) + ["."] {
      let file = url.appending(path: name).path(percentEncoded: false)
      let status = try #require(try FileStatus(atPath: file))
      files[name] = File(
        bytes: status.isRegularFile && status.size < 1 << 24
          ? try Data(contentsOf: URL(filePath: file)) : nil,
        size: status.size, modified: status.modified, changed: status.changed, identity: status.identity)
    }
  }
}

/// Expects that an import throws this code with a text that contains these words, and that nothing was written.
func expectRefusal(
  of source: some ImportSource, _ code: StorageError.Code, _ words: String...,
  keys: ImportKeys = .identifiers,
  sourceLocation: SourceLocation = #_sourceLocation
) async throws {
  let engine = MemoryStorageEngine()
  let error = await #expect(throws: StorageError.self, sourceLocation: sourceLocation) {
    try await source.import(into: engine, keys: keys)
  }
  let found = try #require(error, sourceLocation: sourceLocation)
  #expect(found.code == code, "\(found)", sourceLocation: sourceLocation)
  for word in words { #expect(found.description.contains(word), "\(found)", sourceLocation: sourceLocation) }
  #expect(try await engine.keyCount() == 0, sourceLocation: sourceLocation)
}

/// The directories of temporary database copies that contain this text. Other tests have copies of their own.
func temporaryCopies(containing text: String) throws -> [String] {
  let parent = FileManager.default.temporaryDirectory
  return try FileManager.default.contentsOfDirectory(atPath: parent.path(percentEncoded: false))
    .filter { $0.hasPrefix("stockroom-import-") }
    .filter { name in
      let copy = parent.appending(path: "\(name)/copy.sqlite3")
      return (try? Data(contentsOf: copy))?.range(of: Data(text.utf8)) != nil
    }
}

func date(_ text: String) throws -> Date {
  try Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: true))
}
