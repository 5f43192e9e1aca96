import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport

/// Makes each check in a process of this very command.
final class ConformanceProcesses: Sendable {
  /// The command and the arguments that say how every check is made.
  private let command: [String]
  /// The database of engines that use one, and the connection to a server that its checks share but for those that act on it.
  private let database: EngineCatalog.Database?
  private let server: String?
  private let processCount = MutexProtected(0)

  /// - Parameters:
  ///   - arguments: How hard the checks try, and where, but for the database.
  ///   - database: The database for the checks of engines that use one, if it is somebody's. Each process has a part of its own of the
  ///     namespaces.
  ///   - server: The connection to a server for all checks but those that act on it, which start one of their own.
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

  /// Makes a check of the engine with a name of the catalog.
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
      // It may repeat the command.
      return ended(.couldNotRun("\(error)".withoutPasswords))
    }
  }
}
