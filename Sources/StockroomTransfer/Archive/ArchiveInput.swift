import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Where an archive is read from, from its beginning to its end, and then once more.
///
/// A file stays open from the first time to the second, so that both read the same one. What is no file, such as a pipe, is written to a
/// temporary file without a name as it is read for the first time.
final class ArchiveInput: Sendable {
  private struct State {
    var offset: Int
    var isReadAgain = false
  }

  private let file: FileDescriptor
  /// Where the archive begins in the file.
  private let start: Int
  /// The file as it was when it was opened; nil if it is no file.
  private let status: FileStatus?
  /// What has been read of something that is no file.
  private let copy: FileDescriptor?
  private let state: MutexProtected<State>
  /// Ends the wait for what is no file.
  private let flag: CancellationFlag

  var path: String { file.path }

  /// Opens a file.
  convenience init(_ url: URL, _ flag: CancellationFlag) throws {
    try url.requireFileSystem()
    let path = url.resolvingSymlinksInPath().path(percentEncoded: false)
    guard let file = try FileDescriptor.openFile(atPath: path, O_RDONLY) else {
      throw StorageError.posix(ENOENT, "Opening the archive \(path) failed.")
    }
    guard try file.status().isRegularFile else {
      throw StorageError(.unsupported, "\(path) is no file, so it is no archive.")
    }
    try self.init(file, start: 0, flag)
  }

  /// What a descriptor has open, from where it stands on. The descriptor stays the caller's.
  convenience init(descriptor: Int32, _ flag: CancellationFlag) throws {
    let file = try FileDescriptor(duplicating: descriptor)
    try self.init(file, start: max(0, Int(lseek(file.number, 0, SEEK_CUR))), flag)
  }

  private init(_ file: FileDescriptor, start: Int, _ flag: CancellationFlag) throws {
    self.file = file
    self.flag = flag
    let status = try file.status()
    let isFile = status.isRegularFile
    self.status = isFile ? status : nil
    self.start = isFile ? start : 0
    copy = isFile ? nil : try .makeNamelessFile()
    state = MutexProtected(State(offset: self.start))
  }

  /// Fills the buffer with what follows. Returns how much there was.
  func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    try state.withLock { state in
      let count: Int
      if let copy, !state.isReadAgain {
        count = try readStream(into: buffer)
        try copy.write(UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: state.offset)
      } else {
        count = try (copy ?? file).read(into: buffer, at: state.offset)
      }
      state.offset += count
      return count
    }
  }

  /// Whether nothing follows.
  func isAtEnd() throws -> Bool {
    var byte: UInt8 = 0
    return try withUnsafeMutableBytes(of: &byte) { try read(into: $0) } == 0
  }

  /// Begins for the second time.
  func rewind() {
    state.withLock { $0 = State(offset: start, isReadAgain: true) }
  }

  /// - Throws: `StorageError` with code `corrupted` if the file has been changed since it was opened.
  func checkUnchanged() throws {
    guard let status else { return }
    let now = try file.status()
    guard now.size == status.size, now.modified == status.modified else {
      throw StorageError(.corrupted, "The archive \(path) has been changed while it was read.")
    }
  }

  private func readStream(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    var done = 0
    while done < buffer.count {
      try file.wait(for: POLLIN, flag)
      let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
      #if canImport(Darwin)
        let count = retrying { Darwin.read(file.number, rest.baseAddress, rest.count) }
      #elseif canImport(Glibc)
        let count = retrying { Glibc.read(file.number, rest.baseAddress, rest.count) }
      #else
        let count = retrying { Musl.read(file.number, rest.baseAddress, rest.count) }
      #endif
      if count == 0 { break }
      if count < 0 {
        guard errno == EAGAIN else { throw StorageError.posix(errno, "Reading the archive \(path) failed.") }
      } else {
        done += count
      }
    }
    return done
  }
}
