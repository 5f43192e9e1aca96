#if os(Linux)
  import Foundation
  import StockroomCore
  import StockroomSQLite
  import StockroomKitSupport
  import Testing

  /// Makes a file immutable, on file systems that support it.
  enum ImmutableFile {
    static func set(_ isImmutable: Bool, _ path: String) throws {
      let output = try ProgramOutput(waitingFor: ["/usr/bin/env", "chattr", isImmutable ? "+i" : "-i", path])
      guard output.isSuccess else { throw StorageError(.unsupported, "chattr \(path) \(output.explanation)") }
    }

    static let isPossible: Bool = {
      guard let place = try? TestPlace(), (try? Data().write(to: place.url)) != nil else { return false }
      let path = place.url.path(percentEncoded: false).trimmingSuffix("/")
      return (try? set(true, path)) != nil && (try? set(false, path)) != nil
    }()
  }

  extension String {
    fileprivate func trimmingSuffix(_ suffix: String) -> String {
      hasSuffix(suffix) ? String(dropLast(suffix.count)) : self
    }
  }

  /// The system refuses calls that it previously allowed (rule F4).
  @Suite(
    .enabled(if: ImmutableFile.isPossible, "Making a file immutable needs a right that this process lacks."))
  struct RefusedWritesTests {
    @Test(
      "A file that becomes immutable leaves calls without effect and entries readable",
      arguments: ["", "-wal"])
    func immutable(suffix: String) async throws {
      let place = try TestPlace()
      let path = place.database + suffix
      let engine = try SQLiteStorageEngine(directory: place.directory)
      try await engine.write([(key(0), data("old")), (key(1), Data(count: 9_000))])
      try ImmutableFile.set(true, path)
      defer { try? ImmutableFile.set(false, path) }
      var expected = [key(0): data("old"), key(1): Data(count: 9_000)]
      let batches: [[CacheKey: Data]] = [
        [key(0): data("new")], [key(2): data("new"), key(0): data("newer")], [key(1): Data(count: 2_000_000)],
      ]
      for batch in batches {
        do {
          try await engine.write(batch.map { ($0.key, $0.value) })
          expected.merge(batch) { $1 }
        } catch let error as StorageError {
          #expect([.permissionDenied, .io].contains(error.code), "\(error)")
          #expect(error.description.contains(place.database))
        }
        let found = try await engine.readAllDataAndKeys()
        #expect(Dictionary(uniqueKeysWithValues: found.map { ($0.key, $0.data) }) == expected)
      }
      // Some of these reads open new connections.
      try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<10 { group.addTask { try await engine.readAllData().count } }
        for try await count in group { #expect(count == expected.count) }
      }
      try ImmutableFile.set(false, path)
      try await engine.removeAllData()
      try await engine.write(data("last"), key: key(5))
      try await engine.close()
      let again = try SQLiteStorageEngine(directory: place.directory)
      #expect(try await again.allKeys() == [key(5)])
      try await again.close()
    }
  }
#endif
