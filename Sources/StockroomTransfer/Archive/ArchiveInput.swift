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

/// The source of an archive, which is read twice from beginning to end.
///
/// A file stays open from the first pass to the second, so that both read the same file. Any other source,
/// such as a pipe, is written to an unnamed temporary file during the first pass.
final class ArchiveInput: Sendable {
  private struct State {
    var offset: Int
    var isReadAgain = false
  }

  private let file: FileDescriptor
  /// The offset at which the archive begins in the file.
  private let start: Int
  /// The status of the file when it was opened; nil if the source is not a file.
  private let status: FileStatus?
  /// The copy of a source that is not a file.
  private let copy: FileDescriptor?
  private let state: MutexProtected<State>
  /// Once it is set, waiting for a source that is not a file throws `CancellationError`.
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
      throw StorageError(.unsupported, "\(path) is not a file, so it is not an archive.")
    }
    try self.init(file, start: 0, flag)
  }

  /// Reads from a descriptor, beginning at its current position. The caller must close the descriptor.
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

  /// Fills the buffer with the next bytes. Returns their number.
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

  /// Whether there are no more bytes.
  func isAtEnd() throws -> Bool {
    var byte: UInt8 = 0
    return try withUnsafeMutableBytes(of: &byte) { try read(into: $0) } == 0
  }

  /// Starts the second pass.
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
