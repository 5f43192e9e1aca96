import CustomEngine
import Foundation
import StockroomCore
import Testing

private let key = CacheKey(verbatim: "key")
private let value = Data("value".utf8)

@Test("A place whose first write failed can be opened again")
func failedFirstWrite() async throws {
  try await withDirectory { directory in
    // In a separate process, since the limit applies to all files of a process.
    await #expect(processExitsWith: .success) { [path = directory.path as String] in
      let engine = try JSONStorageEngine(directory: URL(filePath: path))
      try limitFileSize(to: 10)
      await #expect(throws: StorageError.self) { try await engine.write(value, key: key) }
      try await engine.close()
    }
    let engine = try JSONStorageEngine(directory: directory)
    #expect(try await engine.allKeys() == [])
    try await engine.write(value, key: key)
    try await engine.close()
    #expect(try await JSONStorageEngine(directory: directory).read(key: key) == value)
  }
}

@Test("A closed file whose last byte has changed is corrupted")
func changedEnd() async throws {
  try await withDirectory { directory in
    let engine = try JSONStorageEngine(directory: directory)
    try await engine.write(value, key: key)
    try await engine.close()
    let file = directory.appending(path: "changes.json")
    try (Data(contentsOf: file).dropLast() + [UInt8(ascii: " ")]).write(to: file)
    let again = try JSONStorageEngine(directory: directory)
    let error = await #expect(throws: StorageError.self) { try await again.read(key: key) }
    #expect(error?.code == .corrupted)
  }
}

@Test("The file does not grow with each opening")
func growth() async throws {
  try await withDirectory { directory in
    let large = Data(count: 1 << 20)
    for _ in 0..<5 {
      let engine = try JSONStorageEngine(directory: directory)
      for _ in 0..<8 { try await engine.write(large, key: key) }
      try await engine.close()
    }
    let size = try Data(contentsOf: directory.appending(path: "changes.json")).count
    #expect(size < 24 << 20)
  }
}

private func withDirectory(_ body: (URL) async throws -> Void) async throws {
  let directory = FileManager.default.temporaryDirectory.appending(path: "custom-engine-\(UUID())")
  defer { try? FileManager.default.removeItem(at: directory) }
  try await body(directory)
}

/// Has writes of this process fail that would make a file larger.
private func limitFileSize(to bytes: UInt64) throws {
  signal(SIGXFSZ, SIG_IGN)
  var limit = rlimit()
  #if canImport(Glibc)
    let resource = __rlimit_resource_t(RLIMIT_FSIZE.rawValue)
  #else
    let resource = RLIMIT_FSIZE
  #endif
  try #require(getrlimit(resource, &limit) == 0)
  limit.rlim_cur = rlim_t(bytes)
  try #require(setrlimit(resource, &limit) == 0)
}
