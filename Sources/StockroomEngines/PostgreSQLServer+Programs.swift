import Foundation
import StockroomCore
import StockroomKitSupport

/// The programs that are installed with the server.
extension PostgreSQLServer {
  /// The directory of an installed server's programs, or nil if none is installed.
  public static func installedPrograms() -> URL? {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
    let debian = "/usr/lib/postgresql"
    let versions = ((try? FileManager.default.contentsOfDirectory(atPath: debian)) ?? [])
      .compactMap { Int($0) }.sorted(by: >).map { "\(debian)/\($0)/bin" }
    return (versions + path.split(separator: ":").map(String.init)).first { folder in
      ["initdb", "postgres"].allSatisfy { FileManager.default.isExecutableFile(atPath: "\(folder)/\($0)") }
    }.map { URL(filePath: $0, directoryHint: .isDirectory) }
  }

  /// Runs statements as the superuser.
  public func execute(_ statements: String) async throws {
    try await run([
      "psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--host=\(directory.path)", "--port=\(port)",
      "--username=postgres", "--dbname=postgres", "--command=\(statements)",
    ])
  }

  /// Runs one of the server's programs to its end.
  ///
  /// - Throws: `StorageError` with code `io` if it fails, or `unsupported` if no server is installed.
  public func run(_ command: [String]) async throws {
    let process = try LineProcess(Self.asUser([Self.program(command[0])] + command.dropFirst()))
    process.closeInput()
    guard await process.waitUntilEnd() == .exited(status: 0) else {
      throw StorageError(.io, "\(command[0]) has failed: \(process.stderrTail)")
    }
  }

  /// The path of one of the server's programs.
  ///
  /// - Throws: `StorageError` with code `unsupported` if no server is installed.
  static func program(_ name: String) throws -> String {
    guard let programs = installedPrograms() else {
      throw StorageError(.unsupported, "No PostgreSQL server is installed.")
    }
    return programs.appending(path: name).path
  }
}
