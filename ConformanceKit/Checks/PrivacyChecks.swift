#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Who may use the files, and what others have put in the way: rule O5.

extension CheckDefinition {
  @CheckList static var privacyChecks: [CheckDefinition] {
    Check(
      .o5, "privacy.of-files", "the files that an engine makes can be read and written by their owner alone",
      needs: .persistent
    ) { try await checkModes($0, ofDirectories: false) }
    Check(
      .o5, "privacy.of-directories", "the directories that an engine makes can be used by their owner alone",
      needs: .persistent
    ) { try await checkModes($0, ofDirectories: true) }
    for kind in PlantedFile.Kind.allCases {
      Check(
        .o5, "planted.\(kind.rawValue)",
        "with \(kind.what) where a file of the engine would be, it works or throws a StorageError; it changes nothing "
          + "elsewhere, and does not hang", needs: .persistent
      ) { try await checkPlanted($0, kind) }
    }
    Check(
      .o5, "planted.link-to-another-copy",
      "with a symbolic link in the place of a file, to a copy of that elsewhere, a closed store leaves the copy alone",
      needs: .persistent
    ) { try await checkLinkedStore($0) }
    Check(
      .o5, "locks.of-a-mere-reader",
      "whatever locks a process has that may only read the files, every call returns or throws locked after a minute, and "
        + "all is well when they are gone", needs: .persistent, needsWorker: true
    ) { try await checkMereReader($0) }
  }
}

private func checkModes(_ context: CheckContext, ofDirectories isAboutDirectories: Bool) async throws {
  let top = context.root.appending(path: "new", directoryHint: .isDirectory)
  let engine = try await context.open(top.appending(path: "place", directoryHint: .isDirectory))
  func look(_ when: String) throws {
    for url in try System.contents(of: top) + (isAboutDirectories ? [top] : []) {
      guard let (mode, isDirectory) = System.mode(of: url), isDirectory == isAboutDirectories else {
        continue
      }
      try expect(
        mode & 0o077 == 0,
        "\(when), \(url.lastPathComponent) had the permissions 0\(String(mode, radix: 8))")
    }
  }
  try await engine.write(noise(10_000), key: key("k"))
  try await engine.write(entries(keys(20)))
  try look("after writing")
  try await engine.remove(keys: keys(20))
  try await context.close(engine)
  try look("after close()")
  let reopened = try await context.open(top.appending(path: "place", directoryHint: .isDirectory))
  try await reopened.write(entries(keys(20)))
  try look("after reopening")
}

// MARK: - What was planted

/// Something that somebody else has put where the engine would make a file.
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
  /// What a link leads to, outside the place.
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
        (try? Data(contentsOf: target)) == Self.precious, "\(what), the file that it leads to was changed")
    case .danglingLink:
      try expect(
        !FileManager.default.fileExists(atPath: target.systemPath),
        "\(what), a file was made where it leads to")
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
  let names = try await namesOfFiles(context)
  for (number, name) in names.enumerated() {
    let place = context.root.appending(path: "planted-\(number)", directoryHint: .isDirectory)
    let planted = PlantedFile(
      kind: kind, path: place.appending(path: name), target: outside.appending(path: "\(number)"))
    try planted.plant()
    let what = "with \(kind.what) called \(name)"
    // The task goes on for ever if the engine hangs, and with it a thread that is the check's own.
    let patience = context.patience(atMost: patienceWithPlanted)
    let result = await withStallTimeout(patience, on: CheckExecutor()) {
      await Result { try await useBriefly(context, place) }
    }
    switch result {
    case .success(.success): break
    case .success(.failure(let error)):
      guard (error as? CallFailure)?.error is StorageError else { throw error }
    case .failure:
      System.release(planted.path)
      throw Violation("\(what), the engine had not been opened and used after \(patience)")
    }
    try planted.expectUntouched(what)
    try? FileManager.default.removeItem(at: place)
  }
}

/// Far more than it takes to open an engine and make four calls.
private let patienceWithPlanted = Duration.seconds(20)

/// Opens, writes, reads and closes; what it throws says nothing, but that it is a `StorageError`.
private func useBriefly(_ context: CheckContext, _ place: URL) async throws {
  let engine = try await context.openUnkept(place)
  do {
    try await engine.write(data("v"), key: key("k"))
    try await engine.write(entries(keys(12)))
    for key in keys(12) { _ = try await engine.read(key: key) }
    _ = try await engine.readAllDataAndKeys()
  } catch {
    try? await engine.close()
    throw error
  }
  try await engine.close()
}

/// The names of files that the engine makes, relative to its directory: while it is open, and closed, and once more open.
private func namesOfFiles(_ context: CheckContext) async throws -> [String] {
  let place = context.root.appending(path: "names", directoryHint: .isDirectory)
  var names: Set<String> = []
  func look() throws {
    guard FileManager.default.fileExists(atPath: place.systemPath) else { return }
    names.formUnion(try DirectoryContents(of: place).files.filter { $0.value != nil }.keys)
  }
  for _ in 0..<2 {
    let engine = try await context.open(place)
    try await engine.write(data("v"), key: key("k"))
    try await engine.write(entries(keys(12)))
    try look()
    try await context.close(engine)
    try look()
  }
  if names.isEmpty { throw Skip.noFiles }
  let sorted = names.sorted()
  let count = min(sorted.count, 10)
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
      let engine = try await context.openUnkept(copy)
      try await engine.write(store.entries.map { ($0.key, data("changed")) })
      try await engine.close()
      engine.release()
    } catch let failure as CallFailure where failure.error is StorageError {}
    try expect(
      (try? Data(contentsOf: target)) == before,
      "a link called \(file) had the engine change what it leads to")
  }
}

extension Result where Failure == any Error {
  /// What the work gives or throws.
  fileprivate init(_ work: () async throws -> Success) async {
    do { self = .success(try await work()) } catch { self = .failure(error) }
  }
}

// MARK: - A process that may only read

/// A hundred minutes of the fast clock: who waits for longer waits for ever.
private let patienceWithReader = Duration.seconds(20)

private func checkMereReader(_ context: CheckContext) async throws {
  let worker = try context.startWorker(under: try FakeClock.fastTool())
  defer { FakeClock.removeTraces(ofProcess: worker.identifier) }
  try await FakeClock.requireFastClock(of: worker)
  let place = context.place
  func attempt(_ what: String, _ call: CallEngine.Call) async throws -> Bool {
    let result = await withStallTimeout(context.patience(atMost: patienceWithReader)) {
      await Result { try await worker.perform(CallEngine(call, at: place)) }
    }
    switch result {
    case .success(.success): return true
    case .success(.failure(let error as WorkerError)):
      try expect(
        error.code == StorageError.Code.locked.name,
        "\(what) beside a process that had locked files which it could only read did not throw locked: \(error)"
      )
      return false
    case .success(.failure(let error)): throw error
    case .failure:
      worker.kill()
      throw Violation(
        "\(what) did not return for minutes, while another process had locked files which it could only read")
    }
  }
  func write(_ name: String) -> CallEngine.Call { .write([.init(key: name, data: data(name))]) }

  try await translatingWorkerErrors { try await worker.perform(CallEngine(.open, at: place)) }
  try await translatingWorkerErrors { try await worker.perform(CallEngine(write("before"), at: place)) }
  var names = ["before"]
  var locks = try ReaderLocks(on: place)
  if try await attempt("a write", write("beside")) { names.append("beside") }
  _ = try await attempt("a read", .read)
  locks.release()
  try await translatingWorkerErrors { try await worker.perform(CallEngine(write("after"), at: place)) }
  names.append("after")
  try await translatingWorkerErrors { try await worker.perform(CallEngine(.close, at: place)) }

  locks = try ReaderLocks(on: place)
  let isOpen = try await attempt("opening", .open)
  if isOpen, try await attempt("a write", write("later")) { names.append("later") }
  locks.release()
  if !isOpen { try await translatingWorkerErrors { try await worker.perform(CallEngine(.open, at: place)) } }
  let found = try await translatingWorkerErrors { try await worker.perform(CallEngine(.read, at: place)) }
    .flatMap { $0 }
  try expect(
    found.map(\.key).sorted(), is: names.sorted(), "the keys after a mere reader had held locks, sorted,")
  try await translatingWorkerErrors { try await worker.perform(CallEngine(.close, at: place)) }
  worker.closeInput()
  await worker.waitUntilEnd()
}

/// Every lock that somebody can have who may only read the files of a directory.
private struct ReaderLocks {
  private var files: [Int32] = []

  init(on directory: URL) throws {
    for url in try System.contents(of: directory) {
      if let file = System.lockForReading(url) { files.append(file) }
    }
  }

  mutating func release() {
    for file in files { System.closeFile(file) }
    files = []
  }
}
