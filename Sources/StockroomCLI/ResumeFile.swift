import ConformanceKit
import Foundation
import StockroomCore

/// A file with the results of completed checks, from which an interrupted run is continued. Its first line is a JSON
/// object with the build and the options of the run; each other line has a result.
final class ResumeFile: Sendable {
  private struct Start: Codable, Equatable {
    let build: String
    let options: String
  }

  private struct Line: Codable {
    let engine: String
    let result: ConformanceReport.Result
  }

  private struct State {
    let handle: FileHandle
    var results: [String: ConformanceReport.Result] = [:]
    var error: (any Error)?
  }

  private let path: String
  private let state: MutexProtected<State>

  /// Opens or creates the file.
  ///
  /// - Parameters:
  ///   - build: The build that runs: see ``buildDescription()``.
  ///   - settings: The options on which the results depend, without passwords.
  /// - Throws: `StorageError` with code `unsupported` if the file belongs to a run of another build or with other
  ///   options, or is something else; with another code if it cannot be read or written.
  init(_ file: OutputFile, build: String, settings: String) throws {
    let text = FileManager.default.fileExists(atPath: file.path) ? try file.read() : ""
    // A line without a newline was being written when the run was interrupted.
    let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init)
    let decoder = JSONDecoder()
    let own = Start(build: build, options: settings)
    let start = try Self.text(Self.json(own))
    // The first line may have been interrupted too.
    let earlier = lines.first.flatMap { try? decoder.decode(Start.self, from: Data($0.utf8)) }
    let isOwn = lines.isEmpty ? start.hasPrefix(text) : earlier == own
    if !isOwn {
      throw StorageError(
        .unsupported,
        "\(file.path) \(Self.difference(of: earlier, from: own)). Name another file, or remove it.")
    }
    // One line that is not a result, which a full disk may have left, is ignored: its check runs again. Several are
    // from another version.
    let results = lines.dropFirst().compactMap { text in
      (try? decoder.decode(Line.self, from: Data(text.utf8))).map { (text: text, line: $0) }
    }
    guard lines.dropFirst().count - results.count <= 1 else {
      throw StorageError(
        .unsupported,
        "\(file.path) has lines that are not results of this version. Name another file, or remove it.")
    }
    // A check that could not run runs again, too: its process may have been ended together with the earlier run.
    let kept = results.filter { if case .couldNotRun = $0.line.result.outcome { false } else { true } }
    try file.write(([lines.first ?? start] + kept.map(\.text)).map { $0 + "\n" }.joined())
    path = file.path
    var state = State(handle: try file.openedAtEnd())
    for (_, line) in kept { state.results[Self.name(line.engine, line.result.check)] = line.result }
    self.state = MutexProtected(state)
  }

  /// The result of a check in an earlier run; nil if there is none.
  func result(of check: String, engine: String) -> ConformanceReport.Result? {
    state.withLock { $0.results[Self.name(engine, check)] }
  }

  /// Appends a result. ``finish()`` throws the first error. Nothing is appended after an error, since the last line may
  /// be incomplete.
  func add(_ result: ConformanceReport.Result, engine: String) {
    state.withLock { state in
      guard state.error == nil else { return }
      do {
        try state.handle.write(
          contentsOf: try Self.json(Line(engine: engine, result: result)) + Data("\n".utf8))
      } catch {
        state.error = error
      }
    }
  }

  /// - Throws: `StorageError` if a result could not be added.
  func finish() throws {
    if let error = state.withLock({ $0.error }) {
      throw StorageError(.io, "The results could not be kept for --resume in \(path)", underlying: error)
    }
  }

  /// The difference of an earlier run from this one. Nil means that the file is not from a run.
  private static func difference(of earlier: Start?, from own: Start) -> String {
    guard let earlier else { return "is not from a run of this command" }
    if earlier.options != own.options {
      return
        "is from a run with other options. Its options: \(earlier.options). Those of this run: \(own.options)"
    }
    return "is from a run of another build. Its build: \(earlier.build). That of this run: \(own.build)"
  }

  private static func name(_ engine: String, _ check: String) -> String { "\(engine)\n\(check)" }

  private static func json(_ value: some Encodable) throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return try encoder.encode(value)
  }

  private static func text(_ data: Data) -> String { String(decoding: data, as: UTF8.self) }
}
