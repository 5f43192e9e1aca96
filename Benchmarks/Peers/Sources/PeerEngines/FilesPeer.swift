import Foundation
import PeerSystem
import StockroomCore
import Synchronization

/// A file for each value, in one directory, with POSIX calls: a temporary file is written and renamed. At full
/// durability the file is synced before, and the directory afterwards.
final class FilesPeer: PlainValues {
  private let path: String
  private let directory: Int32
  private let durability: Durability
  private let written = Atomic(0)

  init(directory url: URL, durability: Durability) throws {
    path = url.path(percentEncoded: false)
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    self.durability = durability
    guard directory >= 0 else { throw Self.failure("Opening \(path)") }
  }

  deinit { closeDescriptor(directory) }

  var capabilities: EngineCapabilities { [.persistent, .durableWrites] }

  func write(_ data: Data, key: CacheKey) async throws {
    let aside = try writeAside(data, syncing: durability == .full)
    try putInPlace(aside, key)
    if durability == .full { try sync(directory) }
  }

  /// All files are written, then synced (on Linux all together), then renamed.
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    #if os(Linux)
      let aside = try dataAndKeys.map { try writeAside($0.data, syncing: false) }
      if durability == .full, syncfs(directory) != 0 { throw Self.failure("Syncing \(path)") }
    #else
      let aside = try dataAndKeys.map { try writeAside($0.data, syncing: durability == .full) }
    #endif
    for ((key, _), aside) in zip(dataAndKeys, aside) { try putInPlace(aside, key) }
    if durability == .full { try sync(directory) }
  }

  func read(key: CacheKey) async throws -> Data? {
    let file = openat(directory, Self.name(of: key), O_RDONLY | O_CLOEXEC)
    guard file >= 0 else {
      if errno == ENOENT { return nil }
      throw Self.failure("Opening \(key)")
    }
    defer { closeDescriptor(file) }
    return try Self.contents(of: file)
  }

  func allKeys() async throws -> [CacheKey] { try names().map(Self.key) }

  func keyCount() async throws -> Int { try names().count }

  func remove(key: CacheKey) async throws {
    try unlink(Self.name(of: key))
    if durability == .full { try sync(directory) }
  }

  func remove(keys: [CacheKey]) async throws {
    for key in keys { try unlink(Self.name(of: key)) }
    if durability == .full { try sync(directory) }
  }

  func removeAllData() async throws {
    for name in try names() { try unlink(name) }
    if durability == .full { try sync(directory) }
  }

  // MARK: Files

  private func writeAside(_ data: Data, syncing: Bool) throws -> String {
    let name = ".new-\(written.add(1, ordering: .relaxed).newValue)"
    let file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
    guard file >= 0 else { throw Self.failure("Creating a file in \(path)") }
    defer { closeDescriptor(file) }
    let count = data.withUnsafeBytes { systemWrite(file, $0.baseAddress, $0.count) }
    guard count == data.count else { throw Self.failure("Writing a file in \(path)") }
    if syncing { try sync(file) }
    return name
  }

  private func putInPlace(_ aside: String, _ key: CacheKey) throws {
    guard renameat(directory, aside, directory, Self.name(of: key)) == 0 else {
      throw Self.failure("Renaming a file in \(path)")
    }
  }

  private func unlink(_ name: String) throws {
    guard unlinkat(directory, name, 0) == 0 || errno == ENOENT else { throw Self.failure("Removing \(name)") }
  }

  private func sync(_ file: Int32) throws {
    #if canImport(Darwin)
      let result = fcntl(file, F_FULLFSYNC)
    #else
      let result = fsync(file)
    #endif
    guard result == 0 else { throw Self.failure("Syncing \(path)") }
  }

  private static func contents(of file: Int32) throws -> Data {
    // In parts of a fixed size, which saves the system call for the size of the file.
    try withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
      var contents = Data()
      while true {
        let count = systemRead(file, buffer.baseAddress, buffer.count)
        guard count >= 0 else { throw failure("Reading a file") }
        contents.append(contentsOf: UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        if count < buffer.count { return contents }
      }
    }
  }

  private func names() throws -> [String] {
    guard let stream = opendir(path) else { throw Self.failure("Listing \(path)") }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if !name.hasPrefix(".") { names.append(name) }
    }
    return names
  }

  // MARK: Names

  /// The key with slashes and percent signs escaped, and a dot at the beginning, with which temporary files begin.
  private static func name(of key: CacheKey) -> String {
    let name = key.value
    guard
      name.utf8.contains(where: { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "%") })
        || name.utf8.first == UInt8(ascii: ".")
    else { return name }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(name.utf8.count + 16)
    for byte in name.utf8 {
      switch byte {
      case UInt8(ascii: "/"): bytes += "%2F".utf8
      case UInt8(ascii: "%"): bytes += "%25".utf8
      case UInt8(ascii: ".") where bytes.isEmpty: bytes += "%2E".utf8
      default: bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func key(of name: String) -> CacheKey {
    CacheKey(verbatim: name.utf8.contains(UInt8(ascii: "%")) ? name.removingPercentEncoding ?? name : name)
  }

  private static func failure(_ what: String) -> StorageError {
    StorageError.peer("\(what) failed: \(String(cString: strerror(errno))).")
  }
}

// Names that no method of the class shadows.

private func closeDescriptor(_ file: Int32) { close(file) }

private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  count == 0 ? 0 : write(file, bytes, count)
}

private func systemRead(_ file: Int32, _ bytes: UnsafeMutableRawPointer?, _ count: Int) -> Int {
  read(file, bytes, count)
}
