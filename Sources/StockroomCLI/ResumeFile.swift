import ConformanceKit
import Foundation
import StockroomCore

/// A file with the results of the checks that have been made, from which a run goes on that was interrupted: a line of JSON
/// with the build that ran and what it was asked for, and one for each result.
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

  /// Opens the file, or makes it.
  ///
  /// - Parameters:
  ///   - build: The build that runs, see ``buildDescription()``. Results of another one are not used.
  ///   - settings: What the results depend on besides, without passwords. Those of another run are not used.
  /// - Throws: `StorageError` if the file belongs to a run of another build or with other settings, is something else, or cannot be
  ///   written.
  init(_ file: OutputFile, build: String, settings: String) throws {
    let text = FileManager.default.fileExists(atPath: file.path) ? try file.read() : ""
    // A line that was being written when a run was interrupted has no end.
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
    // A line that is no result, as a full disk may have left it, is left out: its check is made again. More are those of another version.
    let results = lines.dropFirst().compactMap { text in
      (try? decoder.decode(Line.self, from: Data(text.utf8))).map { (text: text, line: $0) }
    }
    guard lines.dropFirst().count - results.count <= 1 else {
      throw StorageError(
        .unsupported,
        "\(file.path) has lines that are no results of this version. Name another file, or remove it.")
    }
    // One that could not run says nothing of the engine: its process may have been ended together with that run. It is made again, too.
    let kept = results.filter { if case .couldNotRun = $0.line.result.outcome { false } else { true } }
    try file.write(([lines.first ?? start] + kept.map(\.text)).map { $0 + "\n" }.joined())
    path = file.path
    var state = State(handle: try file.openedAtEnd())
    for (_, line) in kept { state.results[Self.name(line.engine, line.result.check)] = line.result }
    self.state = MutexProtected(state)
  }

  /// The result of a check that was made before.
  func result(of check: String, engine: String) -> ConformanceReport.Result? {
    state.withLock { $0.results[Self.name(engine, check)] }
  }

  /// Adds a result. What fails is thrown by ``finish()``, and nothing is added after it, which would go on in the middle of a line.
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

  /// In what a run differs from this one; nil stands for what is no run.
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
