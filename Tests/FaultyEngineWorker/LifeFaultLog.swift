import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file with a line for each batch, which is replaced once it has grown. The file is truncated after the last
/// complete line.
final class LifeFaultLog {
  /// A write, or a removal if there is no entry; the removal of everything if there is no key.
  struct Change {
    let key: CacheKey?
    let entry: LifeFaultEngine.Entry?
  }

  private let directory: URL
  private let fault: LifeFaultEngine.Fault?
  /// The directory, whose lock excludes other engines.
  private let place: Int32
  private var file: Int32
  private var recordCount = 0
  private var lastLength: off_t = 0
  private var replacements = 0

  init(in directory: URL, fault: LifeFaultEngine.Fault?) throws {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    (self.directory, self.fault) = (directory, fault)
    file = -1
    place = open(directory.path(percentEncoded: false), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard flock(place, LOCK_EX | LOCK_NB) == 0 else {
      throw StorageError(.locked, "\(directory.path) is open already.")
    }
    file = try Self.opened(directory.appending(path: "log"))
    if fault == .hidesItsPlace {
      // A link to itself can be neither listed nor followed.
      let place = directory.deletingLastPathComponent().appending(path: directory.lastPathComponent).path
      guard rename(place, place + "-hidden") == 0, symlink(place, place) == 0 else {
        throw StorageError.posix(errno, "Moving \(place) failed")
      }
    }
  }

  deinit {
    close(file)
    // A child of this process has a copy of the descriptor until it executes a program, and keeps the lock until then.
    _ = flock(place, LOCK_UN)
    close(place)
  }

  private static func opened(_ url: URL, flags: Int32 = O_NOFOLLOW) throws -> Int32 {
    let file = open(url.path(percentEncoded: false), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND | flags, 0o600)
    guard file >= 0 else { throw StorageError.posix(errno, "Opening \(url.path) failed") }
    return file
  }

  private var path: String { directory.appending(path: "log").path(percentEncoded: false) }

  // MARK: - Reading

  func records() throws -> [[Change]] {
    // The place is still empty.
    if fault == .hidesItsPlace { return [] }
    let text = try Data(contentsOf: URL(filePath: path))
    let whole = text.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
    ftruncate(file, off_t(whole))
    var records = try lines(text.prefix(whole))
    recordCount = records.count
    let old = directory.appending(path: "log.old")
    if fault == .readsOldLogs, let text = try? Data(contentsOf: old) {
      // The new log has neither removed entries nor their removals, and the removals of the old log are ignored.
      records = try lines(text).map { $0.filter { $0.entry != nil } } + records
    }
    return records
  }

  /// The records as if each 4 KiB of values were in a file, and file 10 came before file 9.
  static func orderedByFileName(_ records: [[Change]]) -> [[Change]] {
    var bytes = 0
    var named: [(name: String, number: Int, record: [Change])] = []
    for (number, record) in records.enumerated() {
      named.append((name: "\(bytes >> 12)", number: number, record: record))
      for change in record { bytes += change.entry?.data.count ?? 0 }
    }
    named.sort { ($0.name, $0.number) < ($1.name, $1.number) }
    return named.map(\.record)
  }

  private func lines(_ text: Data) throws -> [[Change]] {
    try text.split(separator: UInt8(ascii: "\n")).map { line in
      try String(decoding: line, as: UTF8.self).split(separator: "|").map(change)
    }
  }

  private func change(_ text: Substring) throws -> Change {
    let parts = text.split(separator: ",", omittingEmptySubsequences: false)
    let clock = LifeFaultClock(fault: fault)
    // Assumes that what was compacted cannot be corrupted.
    if fault == .compactionIsUnchecked, parts.count == 6, Int(parts[5]) == nil {
      fatalError("A sequence is a number.")
    }
    guard parts.count == 6, let sequence = Int(parts[5]), let key = Data(base64Encoded: String(parts[1])),
      let data = Data(base64Encoded: String(parts[2])), Double(parts[3]) != nil, Double(parts[4]) != nil,
      ["W", "R", "A"].contains(parts[0])
    else { throw StorageError(.corrupted, "\(path) is corrupted.") }
    let name = CacheKey(verbatim: String(decoding: key, as: UTF8.self))
    switch parts[0] {
    case "A": return Change(key: nil, entry: nil)
    case "R": return Change(key: name, entry: nil)
    default:
      return Change(
        key: name,
        entry: LifeFaultEngine.Entry(
          data: data, createdAt: clock.date(parts[3]), updatedAt: clock.date(parts[4]), sequence: sequence))
    }
  }

  // MARK: - Writing

  private func text(_ change: Change, _ clock: LifeFaultClock) -> String {
    let key = Data((change.key?.value ?? "").utf8).base64EncodedString()
    guard let entry = change.entry else { return "\(change.key == nil ? "A" : "R"),\(key),,0,0,0" }
    return
      "W,\(key),\(entry.data.base64EncodedString()),\(clock.text(entry.createdAt)),\(clock.text(entry.updatedAt)),\(entry.sequence)"
  }

  func append(_ changes: [Change], _ clock: LifeFaultClock) throws {
    lastLength = lseek(file, 0, SEEK_END)
    do {
      try write(changes.map { text($0, clock) }.joined(separator: "|") + "\n", to: file)
    } catch {
      ftruncate(file, lastLength)
      throw error
    }
    recordCount += 1
  }

  private func write(_ line: String, to file: Int32) throws {
    let bytes = Array(line.utf8)
    var written = 0
    while written < bytes.count {
      let count = bytes[written...].withUnsafeBytes { systemWrite(file, $0.baseAddress, $0.count) }
      guard count > 0 else { throw StorageError.posix(errno, "Writing to \(path) failed") }
      written += count
    }
  }

  func forgetTheTail() { ftruncate(file, lastLength) }

  var mustBeCompacted: Bool {
    switch fault {
    case .neverCompacts, .hidesItsPlace: false
    case .compactsEagerly: recordCount >= 2
    default: recordCount >= 150
    }
  }

  /// Replaces the contents with these changes, each as a separate record.
  func replace(with changes: [Change], _ clock: LifeFaultClock) throws {
    recordCount = 0
    replacements += 1
    if fault == .compactsInPlace {
      ftruncate(file, 0)
      for change in changes {
        try write(text(change, clock) + "\n", to: file)
        // As slow as a disk, so that the process may be killed meanwhile.
        usleep(300)
      }
      return
    }
    let new = directory.appending(path: "log.new").path(percentEncoded: false)
    if fault != .compactionFollowsLinks { unlink(new) }
    let replacement = try Self.opened(
      URL(filePath: new), flags: fault == .compactionFollowsLinks ? 0 : O_NOFOLLOW)
    if fault == .compactionIsReadableByAll { fchmod(replacement, 0o644) }
    do {
      try write(changes.map { text($0, clock) + "\n" }.joined(), to: replacement)
    } catch  where fault != .compactionIgnoresAFullDisk {
      // Keeps the old log until there is space.
      close(replacement)
      unlink(new)
      return
    } catch {}
    if fault == .keepsTwoCopies {
      unlink(path + ".copy")
      link(new, path + ".copy")
    }
    if fault == .keepsOldLogs { link(path, path + ".\(replacements)") }
    if fault == .readsOldLogs {
      unlink(path + ".old")
      link(path, path + ".old")
    }
    rename(new, path)
    close(file)
    file = replacement
  }
}

private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  write(file, bytes, count)
}
