#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Opening: rules O1 and O2. Only persistent engines are known to use the directory.

extension CheckDefinition {
  @CheckList static var openingChecks: [CheckDefinition] {
    Check(
      .o1, "opening.makes-directories", "opening creates missing directories", needs: .persistent
    ) { context in
      for path in ["new", "a/b/c/d", "with blanks/and ünïcödé 🗄/100%"] {
        let directory = context.root.appending(path: path, directoryHint: .isDirectory)
        let engine = try await context.open(directory)
        try await engine.write(data("v"), key: key("k"))
        let reopened = try await context.reopen(engine, at: directory)
        try expect(try await reopened.read(key: key("k")), is: data("v"), "read(key:) in \(path)")
        var isDirectory = false
        let exists = FileManager.default.fileExists(atPath: directory.systemPath, isDirectory: &isDirectory)
        try expect(
          exists && isDirectory,
          "the directory \(path) did not exist after an engine was opened on it")
        try await context.close(reopened)
      }
    }

    Check(
      .o2, "opening.on-a-plain-file",
      "opening on a plain file, or below one, throws a StorageError that names the path, and leaves the file "
        + "unchanged",
      needs: .persistent
    ) { context in
      let file = context.root.appending(path: "plain-file-in-the-way")
      try data("not a directory").write(to: file)
      for path in ["", "/below", "/far/below"] {
        let directory = URL(filePath: file.systemPath + path, directoryHint: .isDirectory)
        let what = path.isEmpty ? "opening on a plain file" : "opening below a plain file"
        try await expectRefusal(what, naming: file.lastPathComponent) { try await context.open(directory) }
        try expect(try Data(contentsOf: file), is: data("not a directory"), "the plain file after \(what)")
      }
    }
    Check(
      .o2, "opening.on-another-programs-files",
      "if a file of another program has a name that the engine uses, opening throws a StorageError that "
        + "names it, or leaves it unchanged", needs: .persistent
    ) { context in
      try await checkForeignNames(context)
    }
    Check(
      .o2, "opening.without-permission",
      "without permission, opening or the first use throws a StorageError that names the path and the cause, "
        + "and with permission everything is unchanged", needs: .persistent,
      // The superuser has every permission, so the check needs another process that gives it up.
      needsWorker: System.isSuperuser
    ) { context in
      try await checkPermissions(context)
    }
    Check(
      .o2, "opening.without-descriptors",
      "with few or no free file descriptors, opening works or throws a StorageError that names the path, and "
        + "works once there are enough", needs: .persistent, needsWorker: true
    ) { try await $0.checkWithoutDescriptors(.opening) }
  }
}

/// Takes permissions away in three ways, and then only the permission to write.
private func checkPermissions(_ context: CheckContext) async throws {
  try requirePermissions(below: context.root)
  let worker = System.isSuperuser ? try context.startWorker() : nil
  let store = try await ClosedStore(in: context)
  let none = context.root.appending(path: "no-permission", directoryHint: .isDirectory)
  let noneToWrite = context.root.appending(path: "no-permission-to-write", directoryHint: .isDirectory)
  for directory in [none, noneToWrite] {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  }
  let unreadable = try store.copy { try System.setPermissions(of: $0, directories: 0o755, files: 0) }
  let readable = try store.copy { try System.setPermissions(of: $0, directories: 0o555, files: 0o444) }
  try System.setPermissions(of: none, directories: 0, files: 0)
  try System.setPermissions(of: noneToWrite, directories: 0o555, files: 0o444)
  context.addTeardown {
    // Otherwise the directories could not be removed.
    for directory in [none, noneToWrite, readable] {
      try? System.setPermissions(of: directory, directories: 0o755, files: 0o644)
    }
  }
  let task = PermissionDenial(
    closed: [
      none.appending(path: "below", directoryHint: .isDirectory), unreadable,
      noneToWrite.appending(path: "new", directoryHint: .isDirectory),
    ],
    readable: readable, script: .short)
  if let worker {
    try await context.check(task, in: worker)
  } else {
    try await task.check(makeEngine: { try await context.openUnregistered($0) }, note: { _ in })
  }
  for directory in [unreadable, readable] {
    try System.setPermissions(of: directory, directories: 0o755, files: 0o644)
    let engine = try await context.open(directory)
    try await expectStored(store.entries, in: engine)
    try await context.close(engine)
  }
}

/// Fails unless opening throws a `StorageError` that mentions this name.
private func expectRefusal(
  _ what: String, naming name: String, _ open: () async throws -> EngineUnderTest
) async throws {
  do {
    _ = try await open()
  } catch let failure as CallFailure {
    guard let error = failure.error as? StorageError else {
      throw Violation(
        "\(what) threw \(shortened(String(describing: failure.error))), which is not a StorageError")
    }
    let text = String(describing: error)
    return try expect(
      text.contains(name), "\(what) threw an error that does not name the path: \(shortened(text))")
  }
  throw Violation("\(what) did not throw")
}

/// Writes a text file at the path of each of the engine's files, in an otherwise empty directory.
///
/// The engine may throw, or work with the file next to its own. It may overwrite a file without data, such as a lock or
/// a log: nothing depends on that.
private func checkForeignNames(_ context: CheckContext) async throws {
  let store = try await ClosedStore(in: context)
  let text = data("A text file of another program.\n")
  for file in try await store.filesThatMatter() {
    let directory = store.newDirectory()
    let path = directory.appending(path: file)
    try FileManager.default.createDirectory(
      at: path.deletingLastPathComponent(), withIntermediateDirectories: true)
    try text.write(to: path)
    do {
      let engine = try await context.open(directory)
      try await engine.write(data("v"), key: key("written by the engine"))
      try await context.close(engine)
      let contents = try DirectoryContents(of: directory).files.values
      try expect(
        contents.contains(text),
        "an existing text file named \(file) was overwritten or removed")
    } catch let failure as CallFailure {
      guard let error = failure.error as? StorageError else {
        throw Violation("with a text file named \(file), \(failure)")
      }
      let description = String(describing: error)
      try expect(
        description.contains(directory.lastPathComponent),
        "with a text file named \(file), \(failure.call) threw an error that does not name the path: "
          + shortened(description))
      try expect(
        (try? Data(contentsOf: path)) == text,
        "a text file named \(file) was changed by an engine that did not open")
    }
  }
}
