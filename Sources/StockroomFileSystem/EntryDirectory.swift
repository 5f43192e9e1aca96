#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// A directory of files named after keys. Each component of a path is opened separately, relative to the one
/// before and without following symbolic links, so that nothing planted in the directory leads outside (rule
/// K4).
struct EntryDirectory: Sendable {
  let root: FileDescriptor
  let permissions: FilePermissions

  var path: String { root.path }

  func path(of name: FileName) -> String { "\(path)/\(name.path)" }

  /// Calls `body` with the directory that the file is in and the file's name there. Nil if there is no such
  /// directory. Has two directories open at a time.
  func withParent<Result>(
    of name: FileName, makingDirectories: Bool = false,
    _ body: (FileDescriptor, UnsafePointer<CChar>) throws -> Result?
  ) throws -> Result? {
    try withParent(
      ofComponent: name.directoryCount, of: name, makingDirectories: makingDirectories, body)
  }

  /// The same for any component of the file's path.
  private func withParent<Result>(
    ofComponent last: Int, of name: FileName, makingDirectories: Bool = false,
    _ body: (FileDescriptor, UnsafePointer<CChar>) throws -> Result?
  ) throws -> Result? {
    var parent = root
    for index in 0..<last {
      let next = try name.withComponent(index) { component in
        if makingDirectories { _ = try parent.makeDirectory(component, permissions) }
        return try parent.openDirectory(component)
      }
      guard let next else { return nil }
      parent = next
    }
    return try name.withComponent(last) { try body(parent, $0) }
  }

  /// The file of the entry with its status. Nil if the entry is absent.
  func open(_ name: FileName) throws -> (file: FileDescriptor, status: FileStatus)? {
    try withParent(of: name) { parent, file in
      guard let number = try parent.openNumber(file, O_RDONLY) else { return nil }
      let file = FileDescriptor(owning: number, components: name.text, below: path)
      let status = try file.status()
      guard status.isRegularFile else { throw StorageError.notAFile(file.path) }
      return (file, status)
    }
  }

  /// The status of the entry's file. Nil if the entry is absent.
  func status(of name: FileName) throws -> FileStatus? {
    guard let status = try withParent(of: name, { try $0.status(of: $1) }) else { return nil }
    guard status.isRegularFile else { throw StorageError.notAFile(path(of: name)) }
    return status
  }
}

// MARK: - Changing

extension EntryDirectory {
  /// Moves a staged file to the entry's place, replacing an existing one. False if there is no such staged
  /// file.
  ///
  /// - Parameter keepsDirectories: Whether empty directories remain if it fails, since there has been another
  ///   file in them.
  @discardableResult
  func moveIn(
    _ staged: StagedName, from staging: FileDescriptor, to name: FileName, keepsDirectories: Bool = false
  ) throws -> Bool {
    var isMoved = false
    // If this fails for lack of space, some of the directories may have been created.
    defer { if !isMoved, !keepsDirectories { removeEmptyDirectories(of: name) } }
    isMoved =
      try withParent(of: name, makingDirectories: true) { parent, file -> Bool? in
        try staged.withName { try staging.move($0, to: file, in: parent) }
      } ?? false
    return isMoved
  }

  /// Undoes ``moveIn(_:from:to:keepsDirectories:)``. False if there was nothing to move.
  ///
  /// - Parameter keepsDirectories: Whether directories with no other contents remain, since another file is
  ///   moved back into them.
  @discardableResult
  func moveOut(
    _ name: FileName, to staged: StagedName, in staging: FileDescriptor, keepsDirectories: Bool
  ) throws -> Bool {
    let isMoved: Bool? = try withParent(of: name) { parent, file in
      try staged.withName { try parent.move(file, to: $0, in: staging) }
    }
    if !keepsDirectories { removeEmptyDirectories(of: name) }
    return isMoved ?? false
  }

  /// Moves the entry's file to the corresponding place in another directory, replacing an existing one. False
  /// if it is absent.
  ///
  /// - Parameter keepsDirectories: Whether directories with no other contents remain, so that moving the file
  ///   back needs no space for them.
  @discardableResult
  func move(_ name: FileName, to other: EntryDirectory, keepsDirectories: Bool = false) throws -> Bool {
    let isMoved: Bool? = try withParent(of: name) { parent, file in
      // No directories are created for an absent entry.
      if name.directoryCount > 0, try parent.status(of: file) == nil { return false }
      return try other.withParent(of: name, makingDirectories: true) { otherParent, otherFile in
        try parent.move(file, to: otherFile, in: otherParent)
      }
    }
    if !keepsDirectories { removeEmptyDirectories(of: name) }
    return isMoved ?? false
  }

  /// Removes the entry's file, and the directories with no other contents.
  func remove(_ name: FileName) throws {
    let _: Bool? = try withParent(of: name) { try $0.removeFile($1) }
    removeEmptyDirectories(of: name)
  }

  /// Removes the empty directories on the file's path, from the innermost on.
  func removeEmptyDirectories(of name: FileName) {
    for index in (0..<name.directoryCount).reversed() {
      // The directory may never have been created, or there is no descriptor for the check. An empty directory is harmless, and a
      // completed change of the file must not fail because of it.
      let isInUse = try? withParent(ofComponent: index, of: name) { parent, directory -> Bool? in
        unlinkat(parent.number, directory, AT_REMOVEDIR) != 0 && errno != ENOENT
      }
      if isInUse == true { break }
    }
  }
}

extension EntryDirectory {
  /// Removes all empty directories of long keys, which a process may have left that died between two steps. Costs O(N). A
  /// directory that cannot be removed is harmless.
  func removeEmptyDirectories() { Self.removeEmptyDirectories(in: root, depth: 0) }

  private static func removeEmptyDirectories(in directory: FileDescriptor, depth: Int) {
    // Deeper than the directories of the longest key, so not created by an engine.
    if depth > 32 { return }
    var names: [String] = []
    try? directory.forEachName { name, _ in
      let bytes = UnsafeRawBufferPointer(start: name, count: strlen(name))
      if FileName.isDirectoryOfLongKeys(bytes) { names.append(String(cString: name)) }
    }
    for name in names {
      // This fails for a file.
      guard let inside = try? directory.openDirectory(name) else { continue }
      removeEmptyDirectories(in: inside, depth: depth + 1)
      unlinkat(directory.number, name, AT_REMOVEDIR)
    }
  }
}

extension FileDescriptor {
  /// Renames a file of this directory, replacing an existing one. False if it is absent.
  ///
  /// - Throws: `StorageError` with code `io` if the other directory has been removed, which the system
  ///   reports like the absence of the file.
  fileprivate func move(
    _ name: UnsafePointer<CChar>, to new: UnsafePointer<CChar>, in directory: FileDescriptor
  ) throws -> Bool {
    if try rename(name, to: new, in: directory) { return true }
    if try status(of: name) != nil { throw StorageError.directoryRemoved(directory.path) }
    return false
  }
}

// MARK: - Listing

extension EntryDirectory {
  /// Calls `body` with the bytes of the key of every entry, in no particular order. Costs O(N).
  ///
  /// - Parameter other: Receives the path of everything that has the name of an entry and is not a file.
  func forEachKey(
    _ body: (UnsafeRawBufferPointer) throws -> Void, other: ((String) throws -> Void)? = nil
  ) throws {
    try list(root, FileNamePrefix(), body, other)
  }

  private func list(
    _ directory: FileDescriptor, _ prefix: FileNamePrefix, _ body: (UnsafeRawBufferPointer) throws -> Void,
    _ other: ((String) throws -> Void)?
  ) throws {
    try directory.forEachName { name, kind in
      // The name of an entry does not begin with a dot.
      if name.pointee == CChar(bitPattern: UInt8(ascii: ".")) { return }
      let bytes = UnsafeRawBufferPointer(start: name, count: strlen(name))
      if try isKind(DT_REG, kind, name, in: directory, where: \.isRegularFile) {
        try prefix.withKey(file: bytes, body)
      } else if try isKind(DT_DIR, kind, name, in: directory, where: \.isDirectory),
        let inside = prefix.appending(directory: bytes), let subdirectory = try directory.openDirectory(name)
      {
        try list(subdirectory, inside, body, other)
      } else if let other {
        try prefix.withKey(file: bytes) { _ in try other(directory.path(of: name)) }
      }
    }
  }

  /// Whether the file is of the wanted kind. Reads its status if the listing does not contain the kind, as with some file
  /// systems.
  private func isKind<Kind: BinaryInteger>(
    _ wanted: Kind, _ kind: UInt8, _ name: UnsafePointer<CChar>, in directory: FileDescriptor,
    where matches: (FileStatus) -> Bool
  ) throws -> Bool {
    guard kind == UInt8(truncatingIfNeeded: Int(DT_UNKNOWN)) else {
      return kind == UInt8(truncatingIfNeeded: wanted)
    }
    return try directory.status(of: name).map(matches) ?? false
  }
}
