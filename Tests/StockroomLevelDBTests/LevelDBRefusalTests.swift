import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import StockroomKitSupport
import Testing

#if os(Linux)
  import Glibc

  /// Sets whether a directory can be changed, for root with the immutable attribute.
  private func setWritable(_ isWritable: Bool, _ url: URL) -> Bool {
    if geteuid() != 0 { return chmod(url.path, isWritable ? 0o700 : 0o500) == 0 }
    let command = ["/usr/bin/chattr", isWritable ? "-i" : "+i", url.path]
    return (try? ProgramOutput(waitingFor: command))?.isSuccess ?? false
  }

  @Suite("LevelDB: refused system calls")
  struct LevelDBRefusalTests {
    @Test(
      "Writes that the system refuses have no effect, entries stay readable, and writes succeed once allowed",
      arguments: Durability.allCases)
    func immutableDirectory(_ durability: Durability) async throws {
      let directory = try TemporaryDirectory()
      let engine = try directory.open(durability: durability)
      var expected: [CacheKey: Data] = [:]
      for round in 0..<2 {
        guard setWritable(false, directory.database) else { return }
        defer { _ = setWritable(true, directory.database) }
        var failures = 0
        for number in 0..<12 {
          let entry = (key: CacheKey(verbatim: "\(round)/\(number)"), data: noise(2 << 20))
          do {
            try await engine.write(entry.data, key: entry.key)
            expected[entry.key] = entry.data
          } catch let error as StorageError {
            #expect(error.code == .permissionDenied, "\(error)")
            failures += 1
          }
          if number % 4 == 3 { try await expectEntries(expected, in: engine) }
        }
        #expect(failures > 0)
        #expect(setWritable(true, directory.database))
        let key = CacheKey(verbatim: "\(round)/after")
        try await engine.write(Data("after".utf8), key: key)
        expected[key] = Data("after".utf8)
        try await expectEntries(expected, in: engine)
      }
      try await engine.close()
      try await expectEntries(expected, in: directory.open(durability: durability))
    }

    @Test(
      "Immutable files make writes throw, and reads continue",
      .enabled(if: geteuid() == 0, "only root can make files immutable"))
    func immutableFiles() async throws {
      let directory = try TemporaryDirectory()
      let engine = try directory.open(durability: .full)
      var expected: [CacheKey: Data] = [:]
      func write(_ number: Int) async throws {
        let entry = (key: CacheKey(verbatim: "\(number)"), data: noise(2 << 20))
        try await engine.write(entry.data, key: entry.key)
        expected[entry.key] = entry.data
      }
      for number in 0..<6 { try await write(number) }
      let files = try FileManager.default.contentsOfDirectory(
        at: directory.database, includingPropertiesForKeys: nil)
      defer { for file in files { _ = setWritable(true, file) } }
      guard files.filter({ !setWritable(false, $0) }).isEmpty else { return }
      for number in 6..<18 {
        do {
          try await write(number)
        } catch let error as StorageError {
          #expect(error.code == .permissionDenied, "\(error)")
        }
        try await expectEntries(expected, in: engine)
      }
      for file in files { _ = setWritable(true, file) }
      for number in 18..<24 { try await write(number) }
      try await expectEntries(expected, in: engine)
      try await engine.close()
    }
  }
#endif
