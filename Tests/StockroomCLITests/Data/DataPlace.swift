import Foundation
import StockroomCore
import StockroomEngines
import Testing

/// A place for the commands about data.
struct DataPlace: Sendable, CustomTestStringConvertible {
  let engine: String
  let directory: URL

  var url: String { "\(engine):\(directory.path)" }
  var testDescription: String { engine }

  static let engines = ["sqlite", "lmdb", "leveldb", "files"]

  init(_ engine: String, in directory: URL, named name: String = "place") {
    self.engine = engine
    self.directory = directory.appending(path: name, directoryHint: .isDirectory)
  }

  /// Runs a command on the place, and requires that it succeeds.
  @discardableResult
  func run(_ command: String, _ arguments: String..., by script: String? = nil) async throws
    -> CommandLineTool.Output
  {
    let output = try await CommandLineTool.run([command, url] + arguments, by: script)
    try #require(output.status == 0, "\(command): \(output.standardError)")
    #expect(output.standardError == "")
    return output
  }

  /// Runs a command on the place, expects that it fails with one line of error, and returns that line.
  func failure(_ command: String, _ arguments: String..., status: Int32 = 1) async throws -> String {
    let output = try await CommandLineTool.run([command, url] + arguments)
    #expect(output.status == status)
    #expect(output.standardOutput == "")
    #expect(output.errorLines.count == 1, "\(output.standardError)")
    return output.standardError
  }

  /// Opens the engine in this process for `body`.
  func withEngine<Result>(_ body: (any StorageEngine) async throws -> Result) async throws -> Result {
    let engine = try await #require(try EngineCatalog.select([engine]).first).open(directory, .process)
    let result = try await body(engine)
    try await engine.close()
    return result
  }

  /// The files with their contents, by their paths.
  func files() throws -> [String: Data] {
    let paths = try FileManager.default.subpathsOfDirectory(atPath: directory.path)
    return Dictionary(
      uniqueKeysWithValues: paths.map { path in
        (path, FileManager.default.contents(atPath: directory.appending(path: path).path) ?? Data())
      })
  }
}

/// Creates a sparse file with this number of zeros.
func zeros(_ count: UInt64, in directory: URL) throws -> URL {
  let url = directory.appending(path: "zeros")
  try Data().write(to: url)
  let file = try FileHandle(forWritingTo: url)
  try file.truncate(atOffset: count)
  try file.close()
  return url
}

/// Decodes each line as a JSON object.
func objects(_ output: CommandLineTool.Output) throws -> [[String: any Sendable]] {
  try output.lines.map {
    try #require(JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: any Sendable])
  }
}

extension CacheKey: ExpressibleByStringLiteral {
  /// In tests, a literal is the key itself.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}
