import ArgumentParser
import Foundation
import StockroomCore
import StockroomImport
import StockroomTransfer

extension ImportSourceKind: ExpressibleByArgument {}

/// `stockroom import`
struct ImportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "import",
    abstract: "Copies the data of another library into a place.",
    discussion: """
      The source is not changed. The place must be empty, unless --merge is given: then entries whose keys it has are left out. If an \
      import was interrupted, repeat it with --merge.

      Unless --keys says otherwise, keys that the source has hashed become the identifiers that a Store expects, which are found in the \
      values.

      Example:
        stockroom import old/data.sqlite3 --to sqlite:notes
      """)

  /// How the keys of the source are converted.
  enum Keys: String, CaseIterable, ExpressibleByArgument {
    case identifiers, hashed, stored

    fileprivate var keys: ImportKeys {
      switch self {
      case .identifiers: .identifiers
      case .hashed: .hashed
      case .stored: .asStored
      }
    }
  }

  @Argument(help: ArgumentHelp("The file or directory of the library.", valueName: "path"))
  var source: String

  @OptionGroup var targetOptions: TargetOptions

  @Option(help: "The kind of source. (default: detected)")
  var kind: ImportSourceKind?

  @Option(help: "The table to import, if several tables of the database look like Bodega's.")
  var table: String?

  @Option(help: "The keys: for a Store, for an ObjectStorage with hashed keys, or as they are in the source.")
  var keys = Keys.identifiers

  @Flag(help: "Allows a place with entries, which are kept.")
  var merge = false

  @Option(help: "Lines (text), or an object (json).")
  var format = DataFormat.text

  private struct Imported: Encodable {
    let imported: Int
    let bytes: Int
    let alreadyPresent: Int
    let unresolvedHashes: Int
    let omissions: [String]
  }

  func validate() throws {
    if source.isEmpty { throw ValidationError("The path of the source is empty.") }
    if table != nil, let kind, kind != .bodegaSQLite {
      throw ValidationError("--table is for databases of Bodega's, not for --kind \(kind.rawValue).")
    }
  }

  func run() async throws {
    let target = try targetOptions.layered
    let url = URL(commandLinePath: source)
    let report = try await ActivityLine.whileShown("Importing \(source.escaped)") { line in
      // Checked before the database of the source is copied.
      try refuseTarget(target.place, inside: url)
      // After a signal, the command waits for this: the temporary copy of a database is removed with the last reference
      // to it.
      return try await CleaningUp.awaited { try await copy(url, to: target, line) }
    }
    switch format {
    case .json:
      try writeToStandardOutput(
        jsonLine(
          Imported(
            imported: report.imported, bytes: report.bytes, alreadyPresent: report.alreadyPresent,
            unresolvedHashes: report.unresolvedHashes, omissions: report.omissions)))
    case .text: try writeToStandardOutput(Self.text(report, target.place))
    }
  }

  private func copy(
    _ url: URL, to target: LayeredPlace, _ line: ActivityLine
  ) async throws -> ImportReport {
    let found =
      if let table {
        DetectedSource(bodegaTable: table, at: url)
      } else if let kind {
        DetectedSource(kind, at: url)
      } else {
        try await ImportSourceKind.source(at: url)
      }
    guard found.kind != .persistentCache || keys == .stored else {
      throw StorageError(
        .unsupported,
        "\(source.escaped) is a cache of PersistentCacheKit. A PersistentCache reads it if a program imports it with "
          + "PersistentCacheSource.import(into:namespace:); --keys stored copies what is stored as it is.")
    }
    let opened = try await OpenedSource(found.source)
    return try await target.withEngine(for: .creating) { engine in
      if merge { try await engine.refuseMergingIntoUnfinishedCopy() }
      return try await IncompletePlace.reporting(target.place, completedBy: "importing again with --merge") {
        try await opened.import(into: engine, keys: keys.keys, merging: merge) {
          line.show("\($0.completed) of \($0.total.entryCountText)")
        }
      }
    }
  }

  /// Throws if the target is inside of the source, where an import must not create files.
  private func refuseTarget(_ place: Place, inside source: URL) throws {
    guard case .local(_, let path) = place else { return }
    let components = URL(commandLinePath: path).resolvedComponents
    guard components.starts(with: source.resolvedComponents) else { return }
    throw StorageError(.unsupported, "\(place) is inside of the source, which is not changed.")
  }

  private static func text(_ report: ImportReport, _ place: Place) -> String {
    var lines = ["\(place): \(report.imported.entryCountText) imported and compared"]
    if report.alreadyPresent > 0 {
      lines.append("Left out, since the place has the key: \(report.alreadyPresent.entryCountText)")
    }
    if report.unresolvedHashes > 0 {
      lines.append(
        "Imported with a hash as the key, whose text is not in the value: "
          + report.unresolvedHashes.entryCountText)
    }
    return (lines + report.omissions.map { "Left out: \($0.escaped)" }).map { $0 + "\n" }.joined()
  }
}

/// A source that has been opened, and thereby checked, before the target is created.
private struct OpenedSource: ImportSource {
  let description: String
  private let content: any ImportContent

  init(_ source: any ImportSource) async throws {
    description = source.description
    content = try await source.open()
  }

  func open() async throws -> any ImportContent { content }
}
