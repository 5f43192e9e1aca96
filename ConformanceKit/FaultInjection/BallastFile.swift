import Foundation

/// A file that takes up disk space until it is removed.
struct BallastFile {
  let file: URL

  init(on disk: URL) { file = disk.appending(path: "ballast") }

  /// Uses all free space except this many blocks, or shrinks until that many are free.
  func fill(leavingBlocks count: Int) throws {
    if System.fileType(of: file) == nil { try Data().write(to: file) }
    let handle = try FileHandle(forWritingTo: file)
    defer { try? handle.close() }
    try handle.seekToEnd()
    for size in [1 << 20, 1 << 16, 1 << 12] {
      // An error means that the disk is full, which is intended.
      while (try? handle.write(contentsOf: Data(count: size))) != nil {}
    }
    let length = try handle.seekToEnd() & ~4_095
    try handle.truncate(atOffset: length - min(length, UInt64(count) * 4_096))
  }

  /// Uses this many bytes.
  func take(_ count: Int) throws { try Data(count: count).write(to: file) }

  /// Frees the space at once. Removing the file alone is not enough: a child process that has just been started may
  /// have inherited its descriptor.
  func remove() throws {
    try FileHandle(forWritingTo: file).truncate(atOffset: 0)
    try FileManager.default.removeItem(at: file)
  }
}
