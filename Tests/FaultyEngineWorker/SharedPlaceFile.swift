import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The file of a ``SharedPlaceFaultEngine``, and the lock of its place.
final class SharedPlaceFile {
  typealias Fault = SharedPlaceFaultEngine.Fault

  /// The observable state of a file.
  struct Mark {
    var directory: UInt64 = 0
    var seconds = 0
    var size = 0
    /// The number of changes, or of KiB written, for faulty engines that count them.
    var changes = 0
  }

  private let directory: String
  private let path: String
  /// The entries that were read last, because decoding takes far longer than comparing.
  private var decoded: (bytes: Data, entries: [String: SharedPlaceEntry])?
  private let lockPath: String
  private var lockFile: Int32 = -1
  private var keptOpen: Int32 = -1
  private var callLock: Int32 = -1
  private var holdsPlace = false
  private let isShared: Bool
  private let fault: Fault?

  /// The caches that faulty engines keep for a whole process, by the path on which they were opened.
  private static let remembered = MutexProtected<[String: [String: SharedPlaceEntry]]>([:])
  /// The paths of open places, with the numbers of engines. Paths that differ only in their normalization are equal.
  private static let openPlaces = MutexProtected<[String: (path: String, count: Int)]>([:])
  /// Serializes waiting, for faulty engines.
  private static let turn = NSLock()

  init(in directory: URL, isShared: Bool, fault: Fault?) throws {
    (self.isShared, self.fault) = (isShared, fault)
    let spelling = Self.spelling(of: directory, fault)
    let place = fault == .comparesPathsAsText ? Self.open(spelling) : spelling
    (self.directory, path) = (place, place + "/everything")
    lockPath = fault == .locksBesideItsPlace ? place + ".lock" : place + "/lock"
    try makeDirectory(place)
    if fault == .leavesLockFiles, isShared { return }
    let inherits = fault == .letsLocksBeInherited ? 0 : O_CLOEXEC
    lockFile = systemOpen(lockPath, O_RDWR | O_CREAT | inherits)
    guard lockFile >= 0 else { throw StorageError.posix(errno, "Opening \(lockPath) failed") }
    // At this point others may remove the file that will be locked.
    if fault == .unlinksItsLock { usleep(UInt32.random(in: 500...3_000)) }
    // The deinitializer closes open files.
    if !isShared, !takePlace() { throw StorageError(.locked, "Another engine has \(path).") }
    holdsPlace = true
    if fault == .locksWhenItWrites { _ = flock(lockFile, LOCK_UN) }
    if fault == .letsFilesBeInherited { keptOpen = systemOpen(path, O_RDWR | O_CREAT) }
    if fault == .initializesTwice, access(path, F_OK) != 0 {
      usleep(UInt32.random(in: 500...8_000))
      try save([:])
    }
  }

  deinit {
    if fault == .comparesPathsAsText { Self.close(directory) }
    if keptOpen >= 0 { systemClose(keptOpen) }
    if lockFile < 0 { return }
    if fault == .unlinksItsLock, holdsPlace { unlink(lockPath) }
    // A child of this process has a copy of the descriptor until it executes a program, and keeps the lock until then.
    if fault != .letsLocksBeInherited { _ = flock(lockFile, LOCK_UN) }
    systemClose(lockFile)
  }

  /// The path of an open place that is equal to this one.
  private static func open(_ path: String) -> String {
    openPlaces.withLock { places in
      let open = places[path] ?? (path, 0)
      places[path] = (open.path, open.count + 1)
      return open.path
    }
  }

  private static func close(_ path: String) {
    openPlaces.withLock { places in
      guard let open = places[path], open.count > 1 else {
        places[path] = nil
        return
      }
      places[path] = (open.path, open.count - 1)
    }
  }

  private static func spelling(of directory: URL, _ fault: Fault?) -> String {
    var path = directory.path(percentEncoded: fault == .encodesPaths)
    if fault == .anchorsRelativePaths { path = directory.relativePath }
    while path.count > 1, path.hasSuffix("/") { path.removeLast() }
    let name = path.split(separator: "/").last.map(String.init) ?? ""
    let parent = String(path.dropLast(name.count))
    switch fault {
    case .decodesPaths: return path.removingPercentEncoding ?? path
    case .cutsPathsAtFragments: return parent + (name.split { $0 == "#" || $0 == "?" }.first ?? "x")
    case .cutsLongPaths: return parent + name.prefix(120)
    case .composesPaths: return path.precomposedStringWithCanonicalMapping
    case .lowercasesPaths: return parent + name.lowercased()
    case .trimsPaths: return parent + name.trimmingCharacters(in: .whitespacesAndNewlines)
    case .anchorsRelativePaths where !path.hasPrefix("/"):
      return FileManager.default.temporaryDirectory.path(percentEncoded: false) + "/" + name
    default: return path
    }
  }

  private func makeDirectory(_ place: String) throws {
    if fault == .refusesNewDirectories {
      if access(place, F_OK) == 0 { return }
      let parent = URL(filePath: place).deletingLastPathComponent()
      try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
      usleep(4_000)
      guard mkdir(place, 0o700) == 0 else { throw StorageError.posix(errno, "Making \(place) failed") }
      return
    }
    try FileManager.default.createDirectory(
      at: URL(filePath: place, directoryHint: .isDirectory), withIntermediateDirectories: true)
  }

  // MARK: The lock

  private func takePlace() -> Bool {
    if fault == .waitsToOpen { return wait(milliseconds: 60_000) }
    if tryLock() { return true }
    let isBroken = fault == .breaksOldLocks || fault == .breaksLocksOfYesterday && isLockOld
    if isBroken { breakLock() }
    return isBroken
  }

  /// Whether the lock file was written more than an hour ago, by the clock.
  private var isLockOld: Bool {
    let attributes = try? FileManager.default.attributesOfItem(atPath: lockPath)
    guard let date = attributes?[.modificationDate] as? Date else { return false }
    return Date().timeIntervalSince(date) > 3_600
  }

  private func breakLock() {
    systemClose(lockFile)
    unlink(lockPath)
    lockFile = systemOpen(lockPath, O_RDWR | O_CREAT | O_CLOEXEC)
    _ = flock(lockFile, LOCK_EX)
  }

  private func tryLock() -> Bool {
    guard fault == .locksForTheProcess else { return flock(lockFile, LOCK_EX | LOCK_NB) == 0 }
    // A lock of the process, which is released as soon as any descriptor of the file is closed in it.
    var region = flock()
    region.l_type = Int16(F_WRLCK)
    region.l_whence = Int16(SEEK_SET)
    return fcntl(lockFile, F_SETLK, &region) == 0
  }

  /// Waits for the exclusive lock.
  func lock() throws {
    guard isShared else { return }
    switch fault {
    case .leavesLockFiles:
      for _ in 0..<400 {
        let descriptor = systemOpen(lockPath + ".call", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC)
        if descriptor >= 0 {
          systemClose(descriptor)
          return
        }
        usleep(1_000)
      }
      throw StorageError(.locked, "Another call has \(path).")
    case .breaksOldLocks, .breaksLocksOfYesterday:
      while !wait(milliseconds: 50) {
        if fault == .breaksOldLocks || isLockOld { return breakLock() }
      }
    case .letsCallLocksBeInherited:
      callLock = systemOpen(lockPath + ".call", O_RDWR | O_CREAT)
      for _ in 0..<400 {
        if flock(callLock, LOCK_EX | LOCK_NB) == 0 { return }
        usleep(1_000)
      }
      systemClose(callLock)
      throw StorageError(.locked, "Another call has \(path).")
    case .callsLocksIO, .callsLongLocksIO, .givesUpWaiting:
      // A holder that is only busy releases the lock within five seconds.
      let time = fault == .callsLocksIO ? 100 : fault == .callsLongLocksIO ? 1_500 : 5_000
      if wait(milliseconds: time) { return }
      throw StorageError(fault == .givesUpWaiting ? .locked : .io, "Another process has \(path).")
    case .locksAllPlaces:
      Self.turn.lock()
      defer { Self.turn.unlock() }
      while flock(lockFile, LOCK_EX) != 0, errno == EINTR {}
    default: while flock(lockFile, LOCK_EX) != 0, errno == EINTR {}
    }
  }

  private func wait(milliseconds: Int) -> Bool {
    for _ in 0..<milliseconds {
      if tryLock() { return true }
      usleep(1_000)
    }
    return false
  }

  func unlock() {
    guard isShared else { return }
    switch fault {
    case .leavesLockFiles: unlink(lockPath + ".call")
    // The lock is released with the last descriptor.
    case .letsCallLocksBeInherited: systemClose(callLock)
    default: _ = flock(lockFile, LOCK_UN)
    }
  }

  /// Releases the lock in the middle of a call.
  func letOthersIn() throws {
    unlock()
    usleep(1_500)
    try lock()
  }

  // MARK: The file

  var mark: Mark {
    var mark = Mark()
    var status = stat()
    if stat(directory, &status) == 0 { mark.directory = UInt64(status.st_ino) }
    guard stat(path, &status) == 0 else { return mark }
    mark.size = Int(status.st_size)
    #if canImport(Darwin)
      mark.seconds = status.st_mtimespec.tv_sec
    #else
      mark.seconds = status.st_mtim.tv_sec
    #endif
    if isCounting, stat(countPath, &status) == 0 { mark.changes = Int(status.st_size) }
    return mark
  }

  private var isCounting: Bool {
    fault == .countsApplies || fault == .losesOldLogs || fault == .staysOnCompactedFiles
  }
  private var countPath: String { path + ".count" }

  /// Counts a change for all engines on the place, by appending a byte for each change, or for each KiB.
  func countChange(of size: Int) {
    guard isCounting else { return }
    let file = systemOpen(countPath, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC)
    guard file >= 0 else { return }
    let count = fault == .staysOnCompactedFiles ? max(1, size >> 10) : 1
    _ = systemWrite(file, [UInt8](repeating: UInt8(ascii: "+"), count: count), count)
    systemClose(file)
  }

  func load() throws -> [String: SharedPlaceEntry] {
    if fault == .remembersByName, let entries = Self.remembered.withLock({ $0[path] }) { return entries }
    guard access(path, F_OK) == 0 else { return [:] }
    let bytes = try Data(contentsOf: URL(filePath: path))
    if let decoded, decoded.bytes == bytes { return decoded.entries }
    let entries = bytes.isEmpty ? [:] : try JSONDecoder().decode([String: SharedPlaceEntry].self, from: bytes)
    decoded = (bytes, entries)
    if fault == .remembersByName { Self.remembered.withLock { $0[path] = entries } }
    return entries
  }

  /// Replaces the file with a new one.
  func save(_ entries: [String: SharedPlaceEntry]) throws {
    if fault == .remembersByName { Self.remembered.withLock { $0[path] = entries } }
    if fault == .locksWhenItWrites, !tryLock() {
      throw StorageError(.locked, "Another engine has \(path).")
    }
    // As slow as a disk, so that another engine that also has the place may write meanwhile.
    if fault == .unlinksItsLock { usleep(2_000) }
    let new = path + ".\(UUID().uuidString)"
    try JSONEncoder().encode(entries).write(to: URL(filePath: new))
    guard rename(new, path) == 0 else { throw StorageError.posix(errno, "Renaming \(new) failed") }
  }
}

@discardableResult private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }

private func systemOpen(_ path: String, _ flags: Int32) -> Int32 { open(path, flags, 0o600) }

private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
  write(file, bytes, count)
}
