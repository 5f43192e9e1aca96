import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file with all entries: an eight-byte magic number, a checksum, and the entries as a property list.
struct EnvironmentFaultFile: Sendable {
  let directory: URL
  let path: String
  let fault: EnvironmentFaultEngine.Fault?

  private static let magic = Data("FAULTY01".utf8)

  init(directory: URL, fault: EnvironmentFaultEngine.Fault?) {
    self.directory = directory
    self.fault = fault
    path = directory.appending(path: "everything").path(percentEncoded: false)
  }

  /// The file in which a fault keeps entries with long keys.
  private init(besides file: EnvironmentFaultFile) {
    (directory, path, fault) = (file.directory, file.path + ".long", nil)
  }

  /// The entries that were saved last; empty if there is no file.
  func load() throws -> [EnvironmentFaultEntry] {
    let mode: mode_t = fault == .makesDirectoriesForAll ? 0o755 : 0o700
    if mkdir(directory.path(percentEncoded: false), mode) != 0 {
      switch errno {
      case EEXIST: break
      case ENOENT where fault == .makesDirectoriesForAll:
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      case ENOENT: try FileManager.Directory(url: directory).create()
      case let number: return try refused(number)
      }
    }
    if fault == .makesDirectoriesForAll { chmod(directory.path(percentEncoded: false), 0o700) }
    if fault == .cannotOpenWhenFull { try takeRoom() }
    try makeOtherFile()
    if fault == .emptiesWithoutItsMarker, access(marker, F_OK) != 0 { unlink(path) }
    let descriptor = open(path, O_RDWR | O_CLOEXEC)
    if descriptor < 0 { return errno == ENOENT ? [] : try refused(errno) }
    do {
      let entries = try decode(descriptor)
      systemClose(descriptor)
      guard fault == .dropsLongKeysOnCorruption else { return entries }
      return entries + ((try? EnvironmentFaultFile(besides: self).load()) ?? [])
    } catch {
      if fault != .leaksDescriptors { systemClose(descriptor) }
      return try corrupted(error)
    }
  }

  private func refused(_ number: Int32) throws -> [EnvironmentFaultEntry] {
    switch (fault, number) {
    case (.emptyWithoutDescriptors, EMFILE), (.emptyWithoutPermission, EACCES): return []
    case (.callsDescriptorsCorrupted, EMFILE): throw StorageError(.corrupted, "\(path) is corrupted.")
    case (.concealsPath, _): throw StorageError.posix(number, "Opening the file failed")
    case (.concealsCause, _): throw StorageError(.io, "Opening \(path) failed.")
    default: throw StorageError.posix(number, "Opening \(path) failed")
    }
  }

  private func corrupted(_ error: any Error) throws -> [EnvironmentFaultEntry] {
    switch fault {
    case .trapsOnCorruption: fatalError("The file is corrupted.")
    case .hangsOnCorruption: while true { usleep(10_000) }
    case .emptiesOnCorruption: return []
    case .callsCorruptionIO: throw StorageError(.io, "\(path) is corrupted.", underlying: error)
    case .removesWhatIsCorrupted: try FileManager.default.removeItem(at: directory)
    case .movesWhatIsCorruptedAside:
      try FileManager.default.moveItem(atPath: path, toPath: path + ".corrupted")
    default: break
    }
    throw StorageError(.corrupted, "\(path) is corrupted.", underlying: error)
  }

  private func decode(_ descriptor: Int32) throws -> [EnvironmentFaultEntry] {
    let bytes = try FileHandle(fileDescriptor: descriptor, closeOnDealloc: false).readToEnd() ?? Data()
    let (magic, sum, payload) = (bytes.prefix(8), bytes.dropFirst(8).prefix(8), bytes.dropFirst(16))
    guard magic == Self.magic, fault == .ignoresSums || sum == Self.sum(of: payload) else {
      throw StorageError(.corrupted, "The sum is wrong.")
    }
    return try PropertyListDecoder().decode([EnvironmentFaultEntry].self, from: Data(payload))
  }

  /// Replaces the file with a new one, or leaves it unchanged.
  func save(_ entries: [EnvironmentFaultEntry]) throws {
    guard fault == .dropsLongKeysOnCorruption else { return try replace(with: entries) }
    try EnvironmentFaultFile(besides: self).save(entries.filter { $0.key.utf8.count > 255 })
    try replace(with: entries.filter { $0.key.utf8.count <= 255 })
  }

  private func replace(with entries: [EnvironmentFaultEntry]) throws {
    let encoder = PropertyListEncoder()
    encoder.outputFormat = .binary
    let payload = try encoder.encode(entries)
    let bytes = Self.magic + Self.sum(of: payload) + payload
    let target = fault == .writesInPlace ? path : path + ".new"
    let mode: mode_t = fault == .makesFilesForAll ? 0o644 : 0o600
    let descriptor = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Making \(target) failed") }
    if fault == .makesFilesForAll { fchmod(descriptor, 0o600) }
    var written = 0
    while written < bytes.count {
      let count = bytes.withUnsafeBytes {
        systemWrite(descriptor, $0.baseAddress.map { $0 + written }, $0.count - written)
      }
      guard count > 0 else {
        let number = errno
        systemClose(descriptor)
        if target != path { unlink(target) }
        if fault == .callsFullClosed { throw StorageError(.closed, "Writing \(target) failed.") }
        throw StorageError.posix(number, "Writing \(target) failed")
      }
      written += count
    }
    systemClose(descriptor)
    if target != path, rename(target, path) != 0 { throw StorageError.posix(errno, "Naming \(path) failed") }
    if fault == .emptiesWithoutItsMarker {
      systemClose(open(marker, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600))
    }
  }

  /// Creates the file beside that of the entries, which contains no entries.
  private func makeOtherFile() throws {
    let size: off_t
    switch fault {
    case .hasLockFile: size = 0
    case .hasPreallocatedLog: size = 1 << 20
    default: return
    }
    let other = path + ".other"
    let descriptor = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Making \(other) failed") }
    defer { systemClose(descriptor) }
    if ftruncate(descriptor, size) != 0 { throw StorageError.posix(errno, "Sizing \(other) failed") }
  }

  /// The path of a marker file. Without it, a fault treats the place as a new one.
  private var marker: String { path + ".marker" }

  /// Uses disk space when none should be needed.
  private func takeRoom() throws {
    let other = path + ".room"
    do {
      try Data(count: 1 << 16).write(to: URL(filePath: other))
    } catch {
      throw StorageError(.io, "Making \(other) failed.", underlying: error)
    }
    unlink(other)
  }

  private static func sum(of payload: Data) -> Data {
    withUnsafeBytes(of: payload.checksum.littleEndian) { Data($0) }
  }
}

@discardableResult private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  write(descriptor, bytes, count)
}
