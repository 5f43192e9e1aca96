import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The pages of files that have not reached the disk because a sync of them failed.
///
/// Linux reports the failure once. The pages count as clean from then on: the next sync succeeds without
/// them, and they are later read from the disk with their old contents, unless they are written again. See
/// https://lwn.net/Articles/752063/ and "Can Applications Recover from fsync Failures?" (Rebello and others,
/// 2020).
struct UnsyncedPages: Sendable {
  private static let pageSize = 4_096

  /// A file on the disk after a failed sync.
  struct Remains: Sendable {
    /// The previous contents on the disk.
    let durable: [UInt8]
    /// The pages that the system has dropped.
    fileprivate(set) var pages: Set<Int>
  }

  /// The contents that are certainly on the disk, by inode number: those at the last sync.
  private var synced: [UInt64: [UInt8]] = [:]
  private(set) var lost: [UInt64: Remains] = [:]

  /// Returns the pages that have been lost so far, and forgets them.
  mutating func takeLost() -> UnsyncedPages {
    defer { lost = [:] }
    return self
  }

  #if os(Linux) && (arch(x86_64) || arch(arm64))
    /// Records a call before it is made.
    ///
    /// - Parameter failure: Why it will fail completely or in part.
    mutating func note(_ access: FileAccess, path: [UInt8], failure: SystemFault.Failure?) {
      let fails = failure != nil && failure != .short
      switch access.call {
      case .fsync, .fdatasync:
        // An interrupted call has lost nothing and can be repeated.
        guard failure != .interrupted, let file = access.file else { return }
        let contents = access.contents
        if fails { giveUp(contents, of: file) } else { synced[file] = contents }
      case .write, .writev, .pwrite64, .pwritev:
        guard !fails, let file = access.file, let (offset, bytes) = access.written else { return }
        write(bytes, at: offset, to: file, isSynchronous: access.isSynchronous)
      case .ftruncate:
        guard !fails, let file = access.file else { return }
        // The page with the new end is written again.
        let end = Int(access.arguments[1]) / Self.pageSize
        let kept = lost[file]?.pages.filter { $0 < end }
        lost[file]?.pages = kept ?? []
      case .unlink, .unlinkat, .rename, .renameat, .renameat2:
        // The inode number may be reused soon. A file with another name keeps its contents.
        if !fails, let file = FileAccess.file(at: String(decoding: path, as: UTF8.self), hasOneName: true) {
          (lost[file], synced[file]) = (nil, nil)
        }
      case .open, .openat, .creat:
        let flags =
          access.call == .creat
          ? O_TRUNC : Int32(truncatingIfNeeded: access.arguments[access.call == .open ? 1 : 2])
        if !fails, flags & O_TRUNC != 0, let file = FileAccess.file(at: String(decoding: path, as: UTF8.self))
        {
          lost[file] = nil
        }
      default: break
      }
    }
  #endif

  private mutating func giveUp(_ contents: [UInt8], of file: UInt64) {
    let durable = synced[file] ?? []
    var pages = lost[file]?.pages ?? []
    for page in 0..<(contents.count + Self.pageSize - 1) / Self.pageSize {
      let start = page * Self.pageSize
      let range = start..<min(start + Self.pageSize, contents.count)
      if range.upperBound > durable.count || contents[range] != durable[range] { pages.insert(page) }
    }
    lost[file] = Remains(durable: durable, pages: pages)
  }

  private mutating func write(_ bytes: [UInt8], at offset: Int, to file: UInt64, isSynchronous: Bool) {
    if bytes.isEmpty || offset < 0 { return }
    lost[file]?.pages.subtract(offset / Self.pageSize...(offset + bytes.count - 1) / Self.pageSize)
    guard isSynchronous, synced[file] != nil else { return }
    let end = offset + bytes.count
    let missing = end - (synced[file]?.count ?? 0)
    if missing > 0 { synced[file]?.append(contentsOf: repeatElement(0, count: missing)) }
    synced[file]?.replaceSubrange(offset..<end, with: bytes)
  }

  /// Restores the contents on the disk to the files below a directory.
  func apply(in place: URL) throws {
    #if os(Linux) && (arch(x86_64) || arch(arm64))
      for url in try System.contents(of: place) {
        guard let number = FileAccess.file(at: url.systemPath), let remains = lost[number] else { continue }
        var contents = Array(try Data(contentsOf: url))
        guard let last = remains.pages.max() else { continue }
        for page in remains.pages {
          let start = page * Self.pageSize
          if start >= contents.count { continue }
          for index in start..<min(start + Self.pageSize, contents.count) {
            contents[index] = index < remains.durable.count ? remains.durable[index] : 0
          }
        }
        // If nothing was written after the lost pages at the end, the file has its previous length on the disk.
        if (last + 1) * Self.pageSize >= contents.count {
          var end = last
          while remains.pages.contains(end - 1) { end -= 1 }
          contents.removeLast(
            contents.count
              - max(min(contents.count, end * Self.pageSize), min(contents.count, remains.durable.count)))
        }
        let handle = try FileHandle(forWritingTo: url)
        try handle.truncate(atOffset: 0)
        try handle.write(contentsOf: Data(contents))
        try handle.close()
      }
    #endif
  }
}
