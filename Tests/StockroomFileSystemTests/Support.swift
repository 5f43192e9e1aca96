import Foundation
import StockroomCore
import TestFixtures
import Synchronization
import Testing

@testable import StockroomFileSystem

extension TemporaryDirectory {
  func open(_ durability: Durability = .full) throws -> DiskStorageEngine {
    try DiskStorageEngine(directory: directory, durability: durability)
  }

  /// The paths of everything below the directory except what is in `.stockroom`, sorted.
  func visibleFiles() throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: url.path).filter { !$0.hasPrefix(".stockroom") }
      .sorted()
  }

  func file(_ name: String) -> URL { url.appending(path: name) }

  func contents(_ name: String) throws -> Data { try Data(contentsOf: file(name)) }
}

#if os(Linux)
  extension SmallDisk {
    func open(_ durability: Durability = .full) throws -> DiskStorageEngine {
      try DiskStorageEngine(directory: directory, durability: durability)
    }
  }
#endif

extension CacheKey: ExpressibleByStringLiteral {
  /// In tests, a literal is the key itself.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}

extension DiskConnection {
  /// Stages the value of a new entry for a transaction.
  func stage(_ value: Data, at boundary: UInt64, number: Int, synchronized: Bool = false) throws {
    let header = EntryHeader(createdAt: .now(), sequence: boundary + UInt64(number) + 1)
    try stage(
      value, EntryMetadata(header: header, size: value.count),
      as: StagedName(boundary: boundary, number: number), synchronized: synchronized)
  }
}

func data(_ text: String) -> Data { Data(text.utf8) }

/// Expects a storage error whose description contains the text, with this code if one is given.
func expectError<Result>(
  _ code: StorageError.Code? = nil, naming text: String = "",
  sourceLocation: SourceLocation = #_sourceLocation,
  _ body: () async throws -> Result
) async {
  do {
    _ = try await body()
    Issue.record("nothing was thrown", sourceLocation: sourceLocation)
  } catch let error as StorageError {
    if let code { #expect(error.code == code, "\(error)", sourceLocation: sourceLocation) }
    if !text.isEmpty { #expect(error.description.contains(text), sourceLocation: sourceLocation) }
  } catch {
    Issue.record(error, sourceLocation: sourceLocation)
  }
}

/// A flag that one task sets once.
final class Flag: Sendable {
  private let value = Atomic(false)
  var isSet: Bool { value.load(ordering: .relaxed) }
  func set() { value.store(true, ordering: .relaxed) }
}
