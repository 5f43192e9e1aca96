#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Files planted by other users: rule O5.

extension CheckDefinition {
  @CheckList static var plantedFileChecks: [CheckDefinition] {
    for kind in PlantedFile.Kind.allCases {
      Check(
        .o5, "planted.\(kind.rawValue)",
        "with \(kind.what) in place of one of its files, the engine works or throws a StorageError, changes "
          + "nothing elsewhere and does not hang", needs: .persistent
      ) { try await checkPlanted($0, kind) }
    }
    Check(
      .o5, "planted.link-to-another-copy",
      "if a file of a closed store is replaced by a symbolic link to a copy elsewhere, the engine does not "
        + "change the copy",
      needs: .persistent
    ) { try await checkLinkedStore($0) }
  }
}

/// An object that another user has planted at the path of one of the engine's files.
struct PlantedFile {
  enum Kind: String, CaseIterable, Sendable {
    case link, danglingLink = "dangling-link", fifo, directory

    var what: String {
      switch self {
      case .link: "a symbolic link"
      case .danglingLink: "a symbolic link to nowhere"
      case .fifo: "a FIFO"
      case .directory: "a directory"
      }
    }
  }

  let kind: Kind
  let path: URL
  /// The target of a link, outside the place.
  let target: URL

  func plant() throws {
    try FileManager.default.createDirectory(
      at: path.deletingLastPathComponent(), withIntermediateDirectories: true)
    switch kind {
    case .link:
      try Self.precious.write(to: target)
      try System.makeLink(at: path, to: target)
    case .danglingLink: try System.makeLink(at: path, to: target)
    case .fifo: try System.makeFIFO(path)
    case .directory:
      try FileManager.default.createDirectory(at: path, withIntermediateDirectories: true)
      try Self.precious.write(to: path.appending(path: "precious"))
    }
  }

  func expectUntouched(_ what: String) throws {
    switch kind {
    case .link:
      try expect(
        (try? Data(contentsOf: target)) == Self.precious, "\(what), the file that it points to was changed")
    case .danglingLink:
      try expect(
        !FileManager.default.fileExists(atPath: target.systemPath),
        "\(what), a file was created where it points to")
    case .directory:
      try expect(
        (try? Data(contentsOf: path.appending(path: "precious"))) == Self.precious,
        "\(what), a file in it was changed or removed")
    case .fifo: break
    }
  }

  private static let precious = data("Somebody else's text.\n")
}

private func checkPlanted(_ context: CheckContext, _ kind: PlantedFile.Kind) async throws {
  let outside = context.root.appending(path: "outside", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: outside, withIntermediateDirectories: true)
  let files = try await filesOfEngine(context)
  for (number, file) in files.enumerated() {
    context.noteProgress()
    let place = context.root.appending(path: "planted-\(number)", directoryHint: .isDirectory)
    let planted = PlantedFile(
      kind: kind, path: place.appending(path: file.path), target: outside.appending(path: "\(number)"))
    try planted.plant()
    let what = "with \(kind.what) called \(file.path)"
    // If the engine hangs, the task runs forever and blocks a thread of the check.
    let timeout = context.timeoutWithLocks
    let result = await withStallTimeout(timeout, on: CheckExecutor()) {
      await Result { try await use(context, place, isLong: file.isTemporary) }
    }
    switch result {
    case .success(.success): break
    case .success(.failure(let error)):
      guard (error as? CallFailure)?.error is StorageError else { throw error }
    case .failure:
      System.release(planted.path)
      throw Violation("\(what), opening and using the engine had not finished after \(timeout)")
    }
    try planted.expectUntouched(what)
    try? FileManager.default.removeItem(at: place)
  }
}

/// How long entries are overwritten.
private let timeOfOverwrites = Duration.seconds(5)

/// Opens, writes, reads and closes. Any `StorageError` is allowed.
private func use(_ context: CheckContext, _ place: URL, isLong: Bool) async throws {
  let engine = try await context.openUnregistered(place)
  do {
    try await engine.write(data("v"), key: key("k"))
    try await engine.write(entries(keys(12)))
    for key in keys(12) { _ = try await engine.read(key: key) }
    _ = try await engine.readAllDataAndKeys()
    if isLong {
      try await overwriteMuch(
        engine, context, until: .now + context.timeout(atMost: timeOfOverwrites))
    }
  } catch {
    try? await engine.close()
    throw error
  }
  try await engine.close()
}

/// A file that the engine creates.
private struct EngineFile {
  /// Relative to its directory.
  let path: String
  /// Whether it was only seen while entries were overwritten.
  let isTemporary: Bool
}

/// The files that the engine creates: while it is open, while it is closed, when it is open again, and while entries
/// are overwritten.
private func filesOfEngine(_ context: CheckContext) async throws -> [EngineFile] {
  let place = context.root.appending(path: "names", directoryHint: .isDirectory)
  var names: Set<String> = []
  func look() { names.formUnion(System.sizesOfFiles(in: place).keys) }
  for _ in 0..<2 {
    let engine = try await context.open(place)
    try await engine.write(data("v"), key: key("k"))
    try await engine.write(entries(keys(12)))
    look()
    try await context.close(engine)
    look()
  }
  if names.isEmpty { throw Skip.noFiles }
  let engine = try await context.open(place)
  let seen = MutexProtected<Set<String>>([])
  // Records the names of short-lived files. On Apple's systems, which do not report names, there are none.
  var watch: FileWatch?
  do {
    watch = try FileWatch(path: place.systemPath, .names) { event in
      guard case .change(let name?, _) = event else { return }
      _ = seen.withLock { $0.insert(String(decoding: name, as: UTF8.self)) }
    }
  } catch {
    // The system has no more watches, which is not the engine's fault.
    context.noteShortfall("no names of files that are gone a moment later")
  }
  try await overwriteMuch(engine, context)
  #if !canImport(Darwin)
    FileWatch.deliverPending()
  #endif
  withExtendedLifetime(watch) {}
  try await context.close(engine)
  let temporary = seen.withLock { $0.subtracting(names) }
  return some(names, atMost: 10).map { EngineFile(path: $0, isTemporary: false) }
    + some(temporary, atMost: 4).map { EngineFile(path: $0, isTemporary: true) }
}

/// Some of the names, spread evenly over their order.
private func some(_ names: Set<String>, atMost most: Int) -> [String] {
  let sorted = names.sorted()
  let count = min(sorted.count, most)
  return (0..<count).map { sorted[$0 * sorted.count / count] }
}

private func checkLinkedStore(_ context: CheckContext) async throws {
  let store = try await ClosedStore(in: context)
  let count = min(store.files.count, 10)
  for number in 0..<count {
    let file = store.files[number * store.files.count / count]
    let target = context.root.appending(path: "copy-\(number)")
    let copy = try store.copy {
      try FileManager.default.moveItem(at: $0.appending(path: file), to: target)
      try System.makeLink(at: $0.appending(path: file), to: target)
    }
    let before = try Data(contentsOf: target)
    do {
      let engine = try await context.openUnregistered(copy)
      try await engine.write(store.entries.map { ($0.key, data("changed")) })
      try await engine.close()
      engine.release()
    } catch let failure as CallFailure where failure.error is StorageError {}
    try expect(
      (try? Data(contentsOf: target)) == before,
      "through a link named \(file), the engine changed the file that it points to")
  }
}
