#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Permissions of files, and locks of readers: rule O5.

extension CheckDefinition {
  @CheckList static var privacyChecks: [CheckDefinition] {
    Check(
      .o5, "privacy.of-files", "files that an engine creates can be read and written only by their owner",
      needs: .persistent
    ) { try await checkModes($0, ofDirectories: false) }
    Check(
      .o5, "privacy.of-directories", "directories that an engine creates can be used only by their owner",
      needs: .persistent
    ) { try await checkModes($0, ofDirectories: true) }
    Check(
      .o5, "privacy.at-every-step",
      "no file or directory is ever accessible to others, with any umask of the process",
      needs: .persistent, needsWorker: true
    ) { try await checkModesOfCreation($0) }
    Check(
      .o5, "locks.of-a-mere-reader",
      "whatever locks a process with only read access holds, every call returns, or throws locked after a "
        + "minute, and works once they are released", needs: .persistent, needsWorker: true
    ) { try await checkBesideReader($0) }
  }
}

private func checkModes(_ context: CheckContext, ofDirectories isAboutDirectories: Bool) async throws {
  try requirePermissions(below: context.root)
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
  try await overwriteMuch(engine, context)
  try look("after many overwrites")
  try await engine.remove(keys: keys(20))
  try await context.close(engine)
  try look("after close()")
  let reopened = try await context.open(top.appending(path: "place", directoryHint: .isDirectory))
  try await reopened.write(entries(keys(20)))
  try look("after reopening")
}

/// Skips the check if the file system has no permissions for single files.
func requirePermissions(below root: URL) throws {
  let directory = root.appending(path: "permissions", directoryHint: .isDirectory)
  let file = directory.appending(path: "file")
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  try Data().write(to: file)
  do { try System.setPermissions(of: directory, directories: 0o700, files: 0o600) } catch {
    throw Skip(reason: "Permissions cannot be set here: \(error).")
  }
  for url in [directory, file] where System.mode(of: url).map({ $0.mode & 0o077 != 0 }) ?? true {
    throw Skip(reason: "The file system has no permissions for each file.")
  }
}

// MARK: - The permissions with which files are made

private func checkModesOfCreation(_ context: CheckContext) async throws {
  let strace = try Strace()
  // Without symbolic links, as the system names files.
  let root = context.root.resolvingSymlinksInPath()
  let (shared, empty) = (root.appending(path: "shared"), root.appending(path: "empty"))
  for directory in [shared, empty] {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  }
  // Others cannot reach anything in a directory that has been private from the beginning. So files are created in an
  // existing shared directory, and directories where there is none.
  let tasks = [MakeFiles(place: shared), MakeFiles(place: empty.appending(path: "new/place"))]
  let (_, calls) = try await strace.record(tasks, calls: DiskRecording.callsOfNames, in: context)
  let recordings = [shared, empty].map { directory in
    TraceReader.recording(
      of: calls, root: directory.systemPath, initial: DiskTree(),
      workingDirectory: FileManager.default.currentDirectoryPath
    ) { _ in nil }
  }
  let exposed = recordings.flatMap(\.exposed)
  try expect(
    exposed.isEmpty,
    "these files and directories were created with permissions for others: "
      + exposed.prefix(8).joined(separator: ", "))
  if let limitation = recordings.compactMap(\.limitation).first { throw Skip(reason: limitation) }
}

/// Has an engine create all kinds of its files, in a process without a umask.
struct MakeFiles: WorkerTask {
  let place: URL

  /// - Parameter send: Sends the number of each session.
  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine, send: @Sendable (Int) throws -> Void
  ) async throws {
    System.clearUmask()
    for session in 0..<2 {
      let engine = try await open(place, makeEngine)
      let changes = engine.capabilities.contains(.changeFeed) ? try await engine.changes() : nil
      try await engine.write(data("v"), key: key("k"))
      try await engine.write(entries(keys(20)))
      // Enough data for the engine to start new files.
      for round in 0..<20 {
        try await engine.write(keys(12).map { (key: $0, data: noise(20_000, seed: UInt64(round))) })
      }
      if engine.capabilities.contains(.transactions) {
        try await engine.withTransaction { try $0.write(data("t"), key: key("t")) }
      }
      try await engine.remove(keys: keys(20))
      try await engine.verify()
      withExtendedLifetime(changes) {}
      try await engine.close()
      engine.release()
      try send(session)
    }
  }
}

// MARK: - A process that may only read

/// A hundred minutes of the fast clock: a call that takes longer hangs.
private let timeoutWithReader = Duration.seconds(20)

private func checkBesideReader(_ context: CheckContext) async throws {
  do {
    let worker = try context.startWorker(under: try FakeClock.fastTool())
    defer { FakeClock.removeTraces(ofProcess: worker.identifier) }
    try await FakeClock.requireFastClock(of: worker)
    context.noteProgress()
    return try await EngineBesideReader(
      context: context, worker: worker, place: context.place,
      timeout: context.timeout(atMost: timeoutWithReader)
    ).check()
  } catch is CallHung {
    // With the fast clock, a task that sleeps until a deadline hardly ever wakes up. So the engine only counts as
    // hanging if it also hangs with the right clock.
  }
  context.noteProgress()
  let place = context.root.appending(path: "with the right clock", directoryHint: .isDirectory)
  // Opening checks cover that an engine creates missing directories.
  try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
  do {
    try await EngineBesideReader(
      context: context, worker: try await context.readyWorker(), place: place,
      timeout: context.timeoutWithLocks
    ).check()
  } catch let hung as CallHung {
    throw Violation(
      "\(hung.call) did not return within \(context.timeoutWithLocks), while "
        + (hung.isBesideReader ? "a process with only read access" : "no other process") + " held locks"
    )
  }
}

/// A call that did not return within the time limit.
private struct CallHung: Error {
  let call: String
  /// Whether the other process held its locks during the call.
  let isBesideReader: Bool
}

/// An engine in another process, while this process takes locks on its files now and then.
private struct EngineBesideReader {
  let context: CheckContext
  let worker: WorkerProcess
  let place: URL
  let timeout: Duration

  func check() async throws {
    try await callAlone("opening", .open)
    try await callAlone("a write", Self.write("before"))
    var names = ["before"]
    var locks = try ReaderLocks(on: place)
    defer { locks.release() }
    if try await isDone("a write", Self.write("beside")) { names.append("beside") }
    _ = try await isDone("a read", .read)
    locks.release()
    try await callAlone("a write", Self.write("after"))
    names.append("after")
    try await callAlone("close()", .close)

    locks = try ReaderLocks(on: place)
    let isOpen = try await isDone("opening", .open)
    if isOpen, try await isDone("a write", Self.write("later")) { names.append("later") }
    locks.release()
    if !isOpen { try await callAlone("opening", .open) }
    let found = try await callAlone("a read", .read).flatMap { $0 }
    try expect(
      found.map(\.key).sorted(), is: names.sorted(), "the keys after a mere reader had held locks, sorted,")
    try await callAlone("close()", .close)
    worker.closeInput()
    await worker.waitUntilEnd()
  }

  private static func write(_ name: String) -> CallEngine.Call {
    .write([SharedWork.Entry(key: name, data: data(name))])
  }

  private func call(
    _ name: String, _ call: CallEngine.Call, isBesideReader: Bool
  ) async throws -> [CallEngine.Message] {
    let result = await withStallTimeout(timeout) { [worker, place] in
      await Result { try await worker.perform(CallEngine(call, at: place)) }
    }
    context.noteProgress()
    guard case .success(let messages) = result else {
      worker.kill()
      throw CallHung(call: name, isBesideReader: isBesideReader)
    }
    return try messages.get()
  }

  @discardableResult
  private func callAlone(_ name: String, _ call: CallEngine.Call) async throws -> [CallEngine.Message] {
    try await translatingWorkerErrors { try await self.call(name, call, isBesideReader: false) }
  }

  /// Whether the call returned. Otherwise it threw `locked`.
  private func isDone(_ name: String, _ call: CallEngine.Call) async throws -> Bool {
    do {
      _ = try await self.call(name, call, isBesideReader: true)
      return true
    } catch let error as WorkerError {
      try expect(
        error.code == StorageError.Code.locked.name,
        "\(name) did not throw locked, while a process with only read access held locks: \(error)")
      return false
    }
  }
}

/// All locks that a user with only read access can take on the files of a directory.
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

extension Result where Failure == any Error {
  /// What the work returns or throws.
  init(_ work: () async throws -> Success) async {
    do { self = .success(try await work()) } catch { self = .failure(error) }
  }
}
