import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport

/// Runs each check in a child process of this command's executable.
final class ConformanceProcesses: Sendable {
  /// The executable and the arguments that are the same for every check.
  private let command: [String]
  /// The database of `--postgresql`, and the server that checks share without that option. Checks that act on the
  /// server do not use this one.
  private let database: EngineCatalog.Database?
  private let server: String?
  private let processCount = MutexProtected(0)

  /// - Parameters:
  ///   - arguments: The options for the thoroughness of the checks, and the directory, but not the database.
  ///   - database: The database of `--postgresql`, for the checks of engines that use one. Each process gets its own
  ///     prefix of namespaces there.
  ///   - server: The connection to the server that checks share if `database` is nil. Checks that act on a server start
  ///     their own instead.
  /// - Throws: `StorageError` with code `unsupported` if the path of the executable is not known.
  init(arguments: [String], database: EngineCatalog.Database?, server: String?) throws {
    guard let executable = Bundle.main.executableURL else {
      throw StorageError(.unsupported, "The path of this command is not known.")
    }
    command = [executable.path(percentEncoded: false), "conformance", "--format", "json"] + arguments
    (self.database, self.server) = (database, server)
  }

  private struct Results: Decodable {
    let engines: [ConformanceReport]
  }

  /// Runs a check of an engine in a new process.
  ///
  /// - Parameter engine: The name of the engine in the catalog.
  /// - Returns: The result; `.couldNotRun` if the process ended without one, `.skipped` if the task was cancelled.
  func result(of check: ConformanceCheck, engine: String) async -> ConformanceReport.Result {
    func ended(_ outcome: ConformanceOutcome) -> ConformanceReport.Result {
      ConformanceReport.Result(
        check: check.id, rule: check.rule, expectation: check.expectation, outcome: outcome, seconds: 0)
    }
    var place: [String] = []
    if EngineCatalog.usesDatabase(engine) {
      if let database {
        let number = processCount.withLock { count in
          count += 1
          return count
        }
        let prefix = "\(database.namespacePrefix)\(number)_"
        place = ["--postgresql", database.connection, "--namespace-prefix", prefix]
      } else if let server, !check.actsOnServer {
        place = ["--postgresql", server]
      }
    }
    do {
      let output = try await ProgramOutput(of: command + place + ["--engine", engine, "--check", check.id])
      // Without a result the process ended before the check did.
      guard let results = try? JSONDecoder().decode(Results.self, from: output.output),
        let result = results.engines.first?.results.first
      else { return ended(.couldNotRun("The process of the check \(output.explanation).")) }
      return result
    } catch is CancellationError {
      return ended(.skipped("The task was cancelled."))
    } catch {
      // The message may contain the command, and so a password.
      return ended(.couldNotRun("\(error)".withoutPasswords))
    }
  }
}
