#if !canImport(Darwin)
  import Foundation
  import StockroomCore

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Musl)
    import Musl
  #endif

  /// The file with the values of one suite of user defaults, on systems other than Apple's.
  ///
  /// On these systems, Foundation's own preferences can lose values: a write truncates the file first, and a process never
  /// reads the file again, so that it overwrites the values of other processes.
  ///
  /// This file is replaced atomically with one that is already on disk. A process that changes it holds the
  /// lock file beside it from reading to replacing. A read first checks whether the file is still the one
  /// that was read last, which takes about a microsecond.
  final class ValueFile: Sendable {
    private struct State {
      /// The file that was read last. It stays open, so that no later file can have its identity.
      var descriptor: FileDescriptor?
      /// Nil if there was no file.
      var version: Version?
      var values: [CacheKey: Data] = [:]
      /// Whether this process has synced the directory since it found this file, or found no file.
      var isSynced = false
      var watch: DirectoryWatcher?

      mutating func forgetFile() {
        if version != nil { isSynced = false }
        descriptor = nil
        version = nil
        values = [:]
      }
    }

    /// The identity of the file, and its size and time, which change if another program modifies it in place.
    private struct Version: Equatable {
      let identity: FileIdentity
      let size: Int
      let modified: Timestamp

      init(_ status: FileStatus) {
        (identity, size, modified) = (status.identity, status.size, status.modified)
      }
    }

    let path: String
    private let directory: FileManager.Directory
    private let state = MutexProtected(State())
    /// The open lock file during ``withLock(_:)``, and the depth of nested calls.
    private let lock = MutexProtected<(descriptor: FileDescriptor?, depth: Int)>((nil, 0))

    private init(directory: FileManager.Directory) {
      self.directory = directory
      path = directory.path + "/StoredValues.json"
    }

    /// The value of a key, or nil if there is none.
    ///
    /// - Throws: `StorageError` with code `corrupted` if the file has another format, `unsupported` if it has a newer
    ///   version of the format, `permissionDenied` or `io`.
    func value(for key: CacheKey) throws -> Data? {
      try state.withLock { state in
        try refresh(&state)
        return state.values[key]
      }
    }

    /// Calls `changed` after the file has changed, if the system can report that.
    func watch(_ changed: @escaping @Sendable () -> Void) {
      state.withLock { state in
        if state.watch == nil { state.watch = DirectoryWatcher(directory: directory.path, changed) }
      }
    }

    /// Calls `body` under the lock between processes. Only one thread at a time may call this; calls may be nested.
    ///
    /// - Throws: `StorageError` with code `locked` if another process has the lock for a minute.
    func withLock(_ body: () throws -> Void) throws {
      if lock.withLock({ $0.depth }) == 0 {
        let descriptor = try acquireLock()
        lock.withLock { $0.descriptor = descriptor }
      }
      lock.withLock { $0.depth += 1 }
      defer {
        let descriptor = lock.withLock { lock in
          lock.depth -= 1
          return lock.depth == 0 ? lock.descriptor.take() : nil
        }
        if let descriptor { FileLock.release(descriptor.number) }
      }
      try body()
    }

    /// Stores bytes under a key, or removes the stored ones if they are nil. Call it only within ``withLock(_:)``. Costs
    /// O(file) and two syncs; at most one sync if the same bytes are stored already.
    ///
    /// - Throws: `StorageError`. Nothing has changed then, unless the code is `io` because syncing the directory failed
    ///   after the file was replaced.
    func replace(_ key: CacheKey, with bytes: Data?) throws {
      var (values, isSynced) = try state.withLock { state in
        try refresh(&state)
        return (state.values, state.isSynced)
      }
      if values[key] == bytes {
        if isSynced { return }
        // The directory may not have been synced: that may have failed before, or the process that replaced the file may
        // have been killed before it synced the directory.
        try FileDescriptor.openDirectory(atPath: directory.path).synchronizeNames()
        return state.withLock { $0.isSynced = true }
      }
      values[key] = bytes
      // The lock of the state is not held during the write, so that reads do not wait for the disk.
      let descriptor = try write(Self.encode(values))
      let version = try Version(descriptor.status())
      state.withLock { state in
        state.descriptor = descriptor
        state.version = version
        state.values = values
        state.isSynced = true
      }
    }
  }

  // MARK: - Finding

  extension ValueFile {
    private struct Reference: Sendable {
      weak var file: ValueFile?
    }

    private static let files = MutexProtected<[String: Reference]>([:])

    /// The file of a suite of user defaults: `<suite>/Stockroom/StoredValues.json` in the user's configuration directory.
    /// The name of the standard suite is that of the program.
    ///
    /// - Throws: `StorageError` with code `unsupported` if the name of the suite cannot be determined.
    static func file(of defaults: UserDefaults) throws -> ValueFile {
      let domain = try suiteName(of: defaults) ?? Program.name
      let directory = FileManager.Directory.configuration
        .appending(FileManager.Directory.pathComponent(for: domain)).appending("Stockroom")
      return files.withLock { files in
        if let file = files[directory.path]?.file { return file }
        let file = ValueFile(directory: directory)
        files[directory.path] = Reference(file: file)
        return file
      }
    }

    /// The name that was passed to `UserDefaults(suiteName:)`, which is not public.
    private static func suiteName(of defaults: UserDefaults) throws -> String? {
      var mirror: Mirror? = Mirror(reflecting: defaults)
      while let current = mirror {
        if let suite = current.children.first(where: { $0.label == "suite" })?.value as? String? {
          return suite
        }
        mirror = current.superclassMirror
      }
      throw StorageError(
        .unsupported,
        "With this version of Foundation the suite of a \(type(of: defaults)) cannot be determined.")
    }
  }

  // MARK: - Reading and writing

  extension ValueFile {
    /// The content of the file. Keys are elements of an array, since a dictionary would treat canonically equivalent
    /// strings as equal.
    private struct Content: Codable {
      struct Entry: Codable {
        var key: String
        var value: Data
      }
      var version = 1
      var values: [Entry]
    }

    private static func encode(_ values: [CacheKey: Data]) throws -> Data {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
      return try encoder.encode(
        Content(values: values.sorted { $0.key < $1.key }.map { .init(key: $0.key.value, value: $0.value) }))
    }

    private func decode(_ bytes: Data) throws -> [CacheKey: Data] {
      let content: Content
      do {
        content = try JSONDecoder().decode(Content.self, from: bytes)
      } catch {
        throw StorageError(
          .corrupted, "\(path) is corrupted: its \(bytes.count) bytes are not stored values.",
          underlying: error)
      }
      guard content.version == 1 else {
        throw StorageError(
          .unsupported,
          "\(path) has version \(content.version), which this version of Stockroom does not support.")
      }
      return Dictionary(content.values.map { (CacheKey(verbatim: $0.key), $0.value) }) { $1 }
    }

    /// Reads the file again if it is not the one that was read last.
    private func refresh(_ state: inout State) throws {
      var found = stat()
      guard stat(path, &found) == 0 else {
        guard errno == ENOENT || errno == ENOTDIR else { throw failure("Examining") }
        return state.forgetFile()
      }
      if state.version == Version(FileStatus(found)) { return }
      // O_NONBLOCK, since opening a FIFO of this name would wait for a writer.
      let number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
      guard number >= 0 else {
        guard errno == ENOENT else { throw failure("Opening") }
        return state.forgetFile()
      }
      let descriptor = FileDescriptor(owning: number, path: path)
      let status = try descriptor.status()
      guard status.isRegularFile else {
        throw StorageError(.corrupted, "\(path) is not a regular file.")
      }
      state.values = try decode(descriptor.readData(size: status.size))
      state.isSynced = false
      state.descriptor = descriptor
      state.version = Version(status)
    }

    /// Opens and locks the lock file. Waits a minute at most in total, even if others replace the lock file meanwhile.
    private func acquireLock() throws -> FileDescriptor {
      let path = directory.path + "/StoredValues.lock"
      let end = ContinuousClock.now + FileLock.defaultTimeout
      while true {
        // Each time: the directory may have been removed since.
        try directory.create()
        let number = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0o600)
        if number < 0 {
          let error = errno
          if error == ENOENT, ContinuousClock.now < end { continue }
          throw StorageError.posix(error, "Opening the lock \(path) failed.")
        }
        let descriptor = FileDescriptor(owning: number, path: path)
        try FileLock.acquire(number, path: path, timeout: FileLock.defaultTimeout, until: end)
        do {
          // The directory may have been removed and created again while this waited.
          if try FileIdentity(path: path) == FileIdentity(descriptor: number, path: path) {
            return descriptor
          }
        } catch {
          // Closing the descriptor would not release the lock while a child process between fork and exec has a copy of it.
          FileLock.release(number)
          throw error
        }
        FileLock.release(number)
        guard ContinuousClock.now < end else {
          throw StorageError(
            .locked, "\(path) has been replaced again and again for \(FileLock.defaultTimeout).")
        }
      }
    }

    /// Replaces the file with a new one, and returns that.
    private func write(_ bytes: Data) throws -> FileDescriptor {
      let temporary = path + ".new"
      // A process that was killed may have left this file. Its name is used only under the lock.
      guard unlink(temporary) == 0 || errno == ENOENT else { throw failure("Replacing") }
      // Opened before anything is changed, since opening may fail.
      let directory = try FileDescriptor.openDirectory(atPath: self.directory.path)
      guard let new = try FileDescriptor.makeFile(atPath: temporary, .owner) else {
        throw StorageError.posix(EEXIST, "Creating the file \(temporary) failed.")
      }
      do {
        try bytes.withUnsafeBytes { try new.write($0) }
        try new.synchronize()
        guard rename(temporary, path) == 0 else { throw failure("Replacing") }
      } catch {
        unlink(temporary)
        throw error
      }
      try directory.synchronizeNames()
      return new
    }

    private func failure(_ action: String) -> StorageError { .posix(errno, "\(action) \(path) failed.") }
  }
#endif
