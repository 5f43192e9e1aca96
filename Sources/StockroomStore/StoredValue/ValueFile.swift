#if !canImport(Darwin)
  import Foundation
  import StockroomCore

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Musl)
    import Musl
  #endif

  /// The file that has the values of one suite of user defaults, off Apple's systems.
  ///
  /// Foundation's own preferences there are no place for what must not be lost: writing truncates the file first, a
  /// process overwrites what others have written since it read, and never reads again.
  ///
  /// This file is only ever replaced as a whole, by one that is on disk already, so that at any moment it is either the
  /// old one or the new one. Whoever changes it has the lock of the file beside it from reading to replacing. Whoever
  /// reads it looks first whether it is still the file that was read last, which costs about a microsecond.
  final class ValueFile: Sendable {
    private struct State {
      /// The file that was read last. It stays open, so that no later file has its identity.
      var descriptor: FileDescriptor?
      /// Nil if there was no file.
      var version: Version?
      var values: [CacheKey: Data] = [:]
      var watch: FileWatch?

      mutating func forgetFile() {
        descriptor = nil
        version = nil
        values = [:]
      }
    }

    /// Which file it is, and, should somebody write into it instead of replacing it, in which state.
    private struct Version: Equatable {
      let identity: FileIdentity
      let size: off_t
      let seconds: Int
      let nanoseconds: Int

      init(_ status: stat) {
        identity = FileIdentity(status)
        size = status.st_size
        seconds = Int(status.st_mtim.tv_sec)
        nanoseconds = Int(status.st_mtim.tv_nsec)
      }
    }

    let path: String
    private let directory: FileManager.Directory
    private let state = MutexProtected(State())
    /// The lock that other processes wait for while ``withLock(_:)`` is under way, and how often it was entered.
    private let lock = MutexProtected<(descriptor: FileDescriptor?, depth: Int)>((nil, 0))

    private init(directory: FileManager.Directory) {
      self.directory = directory
      path = directory.path + "/StoredValues.json"
    }

    /// What is stored under a key, or nil if nothing is.
    ///
    /// - Throws: `StorageError` with code `corrupted` if the file is none of this kind, `permissionDenied` or `io`.
    func value(for key: CacheKey) throws -> Data? {
      try state.withLock { state in
        try refresh(&state)
        return state.values[key]
      }
    }

    /// Calls `changed` some time after somebody has changed the file, as far as the system can tell.
    func watch(_ changed: @escaping @Sendable () -> Void) {
      state.withLock { state in
        if state.watch == nil { state.watch = FileWatch(directory: directory.path, changed) }
      }
    }

    /// Calls `body` while no other process changes the file. Only one thread at a time may call this; it may do so again
    /// in `body`.
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

    /// Stores bytes under a key, or nothing if they are nil. Only within ``withLock(_:)``. O(file), and two waits for
    /// the disk, unless the very bytes are stored already.
    ///
    /// - Throws: `StorageError`; then nothing has changed, but for code `io` if the new file has its name and the disk
    ///   did not take note of that.
    func replace(_ key: CacheKey, with bytes: Data?) throws {
      var values = try state.withLock { state in
        try refresh(&state)
        return state.values
      }
      guard values[key] != bytes else { return }
      values[key] = bytes
      // Without the lock of the state: nobody waits for the disk in order to read.
      let descriptor = try write(Self.encode(values))
      let version = try Version(descriptor.status(path: path))
      state.withLock { state in
        state.descriptor = descriptor
        state.version = version
        state.values = values
      }
    }
  }

  // MARK: - Finding

  extension ValueFile {
    private struct Reference: Sendable {
      weak var file: ValueFile?
    }

    private static let files = MutexProtected<[String: Reference]>([:])

    /// The file for the suite of user defaults: `<suite>/Stockroom/StoredValues.json` in the user's directory for
    /// configuration, with the program's name for the standard ones, as Foundation has it.
    ///
    /// - Throws: `StorageError` with code `unsupported` if these user defaults do not say what their suite is.
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

    /// What was given to `UserDefaults(suiteName:)`. There is no method that tells it.
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
        "This version of Foundation does not tell which suite a \(type(of: defaults)) belongs to.")
    }
  }

  // MARK: - Reading and writing

  extension ValueFile {
    /// What is in the file. Keys are elements of an array, since a dictionary would compare them as strings do, where
    /// two spellings of one accent are equal.
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
          .corrupted, "\(path) is damaged: its \(bytes.count) bytes are no stored values.", underlying: error)
      }
      guard content.version == 1 else {
        throw StorageError(.unsupported, "\(path) is of version \(content.version), which is unknown here.")
      }
      return Dictionary(content.values.map { (CacheKey(verbatim: $0.key), $0.value) }) { $1 }
    }

    /// Reads the file again if it is not the one that was read last.
    private func refresh(_ state: inout State) throws {
      var status = stat()
      guard stat(path, &status) == 0 else {
        guard errno == ENOENT || errno == ENOTDIR else { throw failure("Looking at") }
        return state.forgetFile()
      }
      if state.version == Version(status) { return }
      // It does not wait for a writer, should there be a pipe of this name.
      let number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
      guard number >= 0 else {
        guard errno == ENOENT else { throw failure("Opening") }
        return state.forgetFile()
      }
      let descriptor = FileDescriptor(number)
      status = try descriptor.status(path: path)
      guard status.st_mode & S_IFMT == S_IFREG else {
        throw StorageError(.corrupted, "\(path) is no ordinary file.")
      }
      state.values = try decode(descriptor.readAll(path: path))
      state.descriptor = descriptor
      state.version = Version(status)
    }

    private func acquireLock() throws -> FileDescriptor {
      try directory.create()
      let path = directory.path + "/StoredValues.lock"
      while true {
        let number = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0o600)
        guard number >= 0 else { throw failure("Opening the lock of") }
        let descriptor = FileDescriptor(number)
        try FileLock.acquire(number, path: path, timeout: FileLock.defaultTimeout)
        // The directory may have been removed and made again meanwhile.
        if try FileIdentity(path: path) == FileIdentity(descriptor: number, path: path) { return descriptor }
        FileLock.release(number)
      }
    }

    /// Puts a new file into the place of the old one, and returns it.
    private func write(_ bytes: Data) throws -> FileDescriptor {
      let temporary = path + ".new"
      // Left by a process that was killed. Nobody else uses the name as long as this one has the lock.
      guard unlink(temporary) == 0 || errno == ENOENT else { throw failure("Replacing") }
      // Opened before anything has changed, since to open it may fail.
      let names = FileDescriptor(open(directory.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
      guard names.number >= 0 else { throw failure("Opening the directory of") }
      let new = FileDescriptor(open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600))
      guard new.number >= 0 else { throw failure("Replacing") }
      do {
        try new.writeAll(bytes, path: temporary)
        guard fsync(new.number) == 0, rename(temporary, path) == 0 else { throw failure("Replacing") }
      } catch {
        unlink(temporary)
        throw error
      }
      // Some file systems cannot sync a directory, and say so with EINVAL.
      guard fsync(names.number) == 0 || errno == EINVAL else { throw failure("Syncing the directory of") }
      return new
    }

    private func failure(_ action: String) -> StorageError { .posix(errno, "\(action) \(path) failed.") }
  }
#endif
