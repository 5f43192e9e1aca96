package import Foundation
package import StockroomCore

/// The files of a released version of an engine, kept in the repository to test that later versions read
/// them.
///
/// `STOCKROOM_WRITE_GOLDEN=1 swift test --filter "Golden files"` rewrites them for a version with another
/// format.
package struct GoldenPlace: Sendable {
  /// The version that wrote the files.
  package static let version = "0.1.0"
  /// Whether the tests rewrite the golden files.
  package static let isWriting = ProcessInfo.processInfo.environment["STOCKROOM_WRITE_GOLDEN"] != nil

  /// An entry as read by the version that wrote it. Times are in microseconds since 2001.
  package struct Entry: Codable, Hashable, Sendable {
    package let key: String
    let data: Data
    let createdAt: Int
    let updatedAt: Int
  }

  private struct Description: Codable {
    var entries: [Entry]
    /// The modification time of each file, which the repository does not preserve.
    var modificationTimes: [String: Int]
  }

  /// A copy of the golden files.
  package let directory: TemporaryDirectory
  /// The entries in the files, in order of creation.
  package let entries: [Entry]

  /// Copies the golden files from a resource bundle.
  package init(in bundle: Bundle) throws {
    guard let folder = bundle.resourceURL?.appending(path: "Golden/\(Self.version)") else {
      throw StorageError(.io, "\(bundle) has no resources.")
    }
    directory = try TemporaryDirectory(isCreated: false)
    try FileManager.default.copyItem(at: folder.appending(path: "place"), to: directory.url)
    let description = try JSONDecoder().decode(
      Description.self, from: Data(contentsOf: folder.appending(path: "entries.json")))
    entries = description.entries
    for (path, time) in description.modificationTimes {
      let file = try FileDescriptor.openFile(atPath: directory.appending(path).path(percentEncoded: false))
      try file?.setModificationTime(Timestamp(microsecondsSinceReferenceDate: time))
    }
  }

  /// All entries of the engine, in order of creation.
  package static func entries(of engine: some StorageEngine) async throws -> [Entry] {
    try await engine.readAllEntries().map {
      Entry(
        key: $0.key.value, data: $0.data, createdAt: $0.createdAt.microsecondsSinceReferenceDate,
        updatedAt: $0.updatedAt.microsecondsSinceReferenceDate)
    }
  }

  /// Verifies the place and reads its entries; then writes one more entry under ``newKey``, reopens the
  /// engine, and reads the entries again.
  package func contents(
    openedBy open: (FileManager.Directory) async throws -> some StorageEngine
  ) async throws -> (found: [Entry], foundAfterWrite: [Entry]) {
    let engine = try await open(directory.directory)
    try await engine.verify()
    let found = try await Self.entries(of: engine)
    try await engine.write(Data("new".utf8), key: CacheKey(verbatim: Self.newKey))
    try await engine.close()

    let again = try await open(directory.directory)
    try await again.verify()
    let foundAfterWrite = try await Self.entries(of: again)
    try await again.close()
    return (found, foundAfterWrite)
  }

  /// The key of the entry written by ``contents(openedBy:)``.
  package static let newKey = "new"

  /// Writes the golden files below the directory of a test.
  ///
  /// - Parameters:
  ///   - scratch: The directory in which the engine is opened first.
  ///   - omitted: Files that a later opening does not need.
  ///   - finish: Called once the engine has been closed.
  package static func write(
    beside test: String, in scratch: URL, omitting omitted: [String] = [],
    _ open: (FileManager.Directory) async throws -> some StorageEngine,
    finish: () async throws -> Void = {}
  ) async throws {
    let engine = try await open(FileManager.Directory(url: scratch))
    let first: [(key: CacheKey, data: Data)] = [
      (CacheKey(verbatim: "zero bytes"), Data()),
      (CacheKey(verbatim: "overwritten"), Data("first".utf8)),
      (CacheKey(verbatim: "\u{0}\u{1}\u{7F}/../%+e\u{301}\u{E9}\u{1F40B} "), Data(0...255)),
      (CacheKey(verbatim: "removed"), Data("removed".utf8)),
      (CacheKey(verbatim: String(repeating: "Long ", count: 100)), Data("long key".utf8)),
    ]
    for (key, data) in first { try await engine.write(data, key: key) }
    try await engine.remove(key: CacheKey(verbatim: "removed"))
    try await engine.apply([
      .write(Data("second".utf8), key: CacheKey(verbatim: "overwritten")),
      .write(Data((0..<6_000).map { UInt8(truncatingIfNeeded: $0 * $0) }), key: CacheKey(verbatim: "large")),
    ])
    var description = Description(entries: try await entries(of: engine), modificationTimes: [:])
    try await engine.close()
    try await finish()
    for name in omitted { try FileManager.default.removeItem(at: scratch.appending(path: name)) }

    let files = FileManager.default
    let folder = URL(filePath: test).deletingLastPathComponent().appending(path: "Golden/\(version)")
    if files.fileExists(atPath: folder.path(percentEncoded: false)) { try files.removeItem(at: folder) }
    try files.createDirectory(at: folder, withIntermediateDirectories: true)
    try files.copyItem(at: scratch, to: folder.appending(path: "place"))
    for path in try files.subpathsOfDirectory(atPath: scratch.path(percentEncoded: false)) {
      let attributes = try files.attributesOfItem(
        atPath: scratch.appending(path: path).path(percentEncoded: false))
      guard attributes[.type] as? FileAttributeType == .typeRegular,
        let time = attributes[.modificationDate] as? Date
      else { continue }
      description.modificationTimes[path] = time.microsecondsSinceReferenceDate
    }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
    try encoder.encode(description).write(to: folder.appending(path: "entries.json"))
  }
}

extension Date {
  fileprivate var microsecondsSinceReferenceDate: Int {
    Int((timeIntervalSinceReferenceDate * 1e6).rounded())
  }
}

extension Timestamp {
  fileprivate init(microsecondsSinceReferenceDate microseconds: Int) {
    self.init(nanoseconds: (Int64(microseconds) + 978_307_200_000_000) * 1_000)
  }
}
