import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport
import StockroomLayers
import StockroomMemory
import TestFixtures
import Testing

func key(_ text: String) -> CacheKey { CacheKey(verbatim: text) }

/// The built-in engines without a server.
let engineNames = EngineCatalog.onThisMachine.map(\.name)
/// Those that can be backed up.
let backupEngineNames = engineNames.filter { $0 != "memory" }

/// Opens a built-in engine in a directory.
func open(_ name: String, _ directory: URL, _ durability: Durability = .process) async throws
  -> any StorageEngine
{
  try await EngineCatalog.select([name])[0].open(directory, durability)
}

/// Opens a built-in engine that can be backed up.
func openForBackup(_ name: String, _ directory: URL) async throws -> any BackupEngine {
  try #require(try await open(name, directory) as? any BackupEngine)
}

/// Bytes that zlib cannot compress, since nothing in them is repeated within its window of 32 KiB.
func incompressible(_ count: Int, seed: UInt64 = 1) -> Data {
  var random = SeededRandom(seed: seed)
  let tile = random.bytes(min(count, 70_000))
  var bytes = Data(capacity: count)
  while bytes.count < count { bytes.append(tile.prefix(count - bytes.count)) }
  return bytes
}

/// Writes entries of many kinds, some of them more than once.
func fill(_ engine: some StorageEngine, largest: Int = 3_000_000) async throws {
  var random = SeededRandom(seed: 7)
  try await engine.write(Data(), key: key("zero bytes"))
  try await engine.write(Data("first".utf8), key: key("z overwritten"))
  try await engine.write(incompressible(largest), key: key("larger than a block"))
  try await engine.write(Data(repeating: 7, count: largest), key: key("a compressible"))
  for number in 0..<30 {
    try await engine.write(random.bytes(number * 40), key: key("\(number * 7 % 30)/\u{E9}e\u{301}\u{0}.."))
  }
  try await engine.write(Data("removed".utf8), key: key("removed"))
  try await engine.write(random.bytes(10), key: key(String(repeating: "long ", count: 102)))
  try await engine.remove(key: key("removed"))
  try await engine.write(Data("second".utf8), key: key("z overwritten"))
}

/// Expects a storage error with one of the codes, and returns it.
@discardableResult func expectError<Result>(
  _ codes: StorageError.Code..., sourceLocation: SourceLocation = #_sourceLocation,
  _ body: () async throws -> Result
) async -> StorageError? {
  do {
    let result = try await body()
    Issue.record("\(result) came instead of an error.", sourceLocation: sourceLocation)
  } catch let error as StorageError {
    #expect(codes.contains(error.code), "\(error)", sourceLocation: sourceLocation)
    return error
  } catch {
    Issue.record(error, sourceLocation: sourceLocation)
  }
  return nil
}

/// The sorted names of the files in a directory.
func names(in directory: URL) throws -> [String] {
  try FileManager.default.contentsOfDirectory(atPath: directory.path(percentEncoded: false)).sorted()
}

/// The last nine bits of the mode of everything at and below a path.
func modes(below url: URL) throws -> [String: Int] {
  let path = url.path(percentEncoded: false)
  var modes: [String: Int] = [:]
  for name in try FileManager.default.subpathsOfDirectory(atPath: path) + ["."] {
    let attributes = try FileManager.default.attributesOfItem(atPath: path + "/" + name)
    modes[name] = (attributes[.posixPermissions] as? Int ?? 0) & 0o777
  }
  return modes
}

/// An engine that always has the same entries, with any dates.
struct FixedEntriesEngine: StorageLayer {
  let base: MemoryStorageEngine
  let entries: [StorageEntry]

  func readAllEntries() async throws -> [StorageEntry] { entries }
}
