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

extension FileDescriptor {
  /// Creates a temporary file that only its owner can access and that disappears once it is closed, even if
  /// the process is killed.
  package static func makeNamelessFile() throws -> FileDescriptor {
    let url = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
    let path = url.path(percentEncoded: false)
    guard let file = try makeFile(atPath: path, .owner) else {
      throw StorageError.posix(EEXIST, "Creating \(path) failed.")
    }
    guard unlink(path) == 0 else { throw StorageError.posix(errno, "Removing the name \(path) failed.") }
    return file
  }

  /// The file's size, kind and times.
  package func status() throws -> FileStatus {
    var raw = stat()
    guard fstat(number, &raw) == 0 else {
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    return FileStatus(raw)
  }

  /// Reads `size` bytes from an offset on, or fewer if the file has become shorter.
  package func readData(size: Int, at offset: Int = 0) throws -> Data {
    guard size > 0 else { return Data() }
    // Not Data(count:), which ends the process for a file that is larger than memory.
    guard let bytes = malloc(size) else {
      throw StorageError.posix(ENOMEM, "Reading \(path), which has \(size) bytes, failed.")
    }
    do {
      let count = try read(into: UnsafeMutableRawBufferPointer(start: bytes, count: size), at: offset)
      return Data(bytesNoCopy: bytes, count: count, deallocator: .free)
    } catch {
      free(bytes)
      throw error
    }
  }

  /// Reads the bytes from an offset in the file, at most `count`.
  package func readBytes(_ count: Int, at offset: Int = 0) throws -> [UInt8] {
    // For an array without capacity, the initializer would also set the count of the storage that all empty
    // arrays share, which the thread sanitizer reports as a race.
    if count <= 0 { return [] }
    try checkMemory(forBytes: count)
    return try [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      initialized = try read(into: UnsafeMutableRawBufferPointer(buffer), at: offset)
    }
  }

  /// Throws if there is not enough memory for an array of this size, since a failed allocation would end the process. A sparse
  /// file may have any size.
  private func checkMemory(forBytes count: Int) throws {
    guard count > Self.mostBytesUnchecked else { return }
    // Not with `malloc`: since the memory is not used, the compiler would remove the call.
    let memory = mmap(nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0)
    guard let memory, memory != MAP_FAILED else {
      throw StorageError.posix(errno, "Reading \(count) bytes of \(path) failed.")
    }
    munmap(memory, count)
  }

  /// Reading more bytes than this takes longer than the check.
  private static let mostBytesUnchecked = 1 << 24

  /// The maximum number of bytes that one call reads or writes. Apple's systems refuse calls for more than
  /// `INT_MAX` bytes, with EINVAL.
  private static let mostBytesOfCall = 1 << 30

  /// Fills the buffer from an offset in the file. Returns the number of bytes read, which is smaller if the file ends before.
  package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int = 0) throws -> Int {
    var done = 0
    while done < buffer.count {
      let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
      let size = min(rest.count, Self.mostBytesOfCall)
      let count = retrying { pread(number, rest.baseAddress, size, off_t(offset + done)) }
      guard count >= 0 else { throw StorageError.posix(errno, "Reading \(path) failed.") }
      if count == 0 { break }
      done += count
    }
    return done
  }

  /// Writes all of the bytes at an offset in the file.
  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int = 0) throws {
    var done = 0
    while done < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
      let size = min(rest.count, Self.mostBytesOfCall)
      let count = retrying { pwrite(number, rest.baseAddress, size, off_t(offset + done)) }
      guard count > 0 else {
        throw StorageError.posix(count == 0 ? ENOSPC : errno, "Writing \(path) failed.")
      }
      done += count
    }
  }

  package func setModificationTime(_ time: Timestamp) throws {
    var (seconds, rest) = time.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
    // Before 1970, too, the nanoseconds count forward from the second.
    if rest < 0 { (seconds, rest) = (seconds - 1, rest + 1_000_000_000) }
    let value = timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
    guard futimens(number, [value, value]) == 0 else {
      throw StorageError.posix(errno, "Setting the time of \(path) failed.")
    }
  }

  package func truncate(to size: Int) throws {
    guard retrying({ ftruncate(number, off_t(size)) }) == 0 else {
      throw StorageError.posix(errno, "Truncating \(path) failed.")
    }
  }

  /// Gives the file these permissions, regardless of the process's umask.
  package func setMode(_ mode: UInt16) throws {
    guard fchmod(number, mode_t(mode)) == 0 else {
      throw StorageError.posix(errno, "Setting the permissions of \(path) failed.")
    }
  }

  /// Returns once the file is on the disk.
  package func synchronize() throws {
    if !isSynchronized() { throw StorageError.posix(errno, "Writing \(path) to the disk failed.") }
  }

  /// Returns once the names in the directory are on the disk.
  package func synchronizeNames() throws {
    // Some file systems cannot sync a directory, and report EINVAL; nothing more can be done there.
    if !isSynchronized(), errno != EINVAL {
      throw StorageError.posix(errno, "Writing the directory \(path) to the disk failed.")
    }
  }

  private func isSynchronized() -> Bool {
    #if canImport(Darwin)
      // fsync leaves the data in the drive's cache on these systems. Not every file system supports F_FULLFSYNC. After
      // any other error, fsync must not follow: it may succeed although data have been lost.
      if retrying({ fcntl(number, F_FULLFSYNC) }) == 0 { return true }
      guard [ENOTSUP, EOPNOTSUPP, ENOTTY, EINVAL].contains(errno) else { return false }
    #endif
    return retrying { fsync(number) } == 0
  }
}
