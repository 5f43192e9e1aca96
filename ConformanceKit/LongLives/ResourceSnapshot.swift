import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The resources that a process and a directory use, including the process's own directory for temporary files.
struct ResourceSnapshot {
  /// How many more files, descriptors and threads are tolerated.
  static let countTolerance = 50
  /// How many more bytes of files and of memory are tolerated.
  static let byteTolerance = 64 << 20

  /// The number of files.
  private(set) var files = 0
  /// The total size of the files.
  private(set) var bytes = 0
  private var descriptors = 0
  private let threads: Int
  /// The private memory of the process.
  private(set) var memory = 0

  /// Nothing but threads.
  init(threads: Int) { self.threads = threads }

  /// - Parameter place: The directory of the engine.
  /// - Throws: The error of listing it, for example because files are being created and removed.
  private init(in place: URL) throws {
    var sizes = try System.fileSizes(below: place)
    let temporary = Self.temporaryDirectory(beside: place)
    if System.fileType(of: temporary) == .typeDirectory { sizes += try System.fileSizes(below: temporary) }
    (files, bytes) = (sizes.count, sizes.reduce(0, +))
    (descriptors, threads, memory) = (System.descriptorCount, System.threadCount, System.ownMemory)
  }

  /// Sets the directory for temporary files of this process to a separate one.
  static func makeTemporaryDirectory(beside place: URL) throws {
    let temporary = temporaryDirectory(beside: place)
    try FileManager.default.createDirectory(at: temporary, withIntermediateDirectories: true)
    setenv("TMPDIR", temporary.systemPath, 1)
  }

  private static func temporaryDirectory(beside place: URL) -> URL {
    place.deletingLastPathComponent().appending(path: "temporary", directoryHint: .isDirectory)
  }

  /// The resources in use, once the files can be listed.
  ///
  /// - Throws: ``UnlistablePlace`` if they cannot be listed for a while.
  static func measured(in place: URL) async throws -> ResourceSnapshot {
    var reason: (any Error)?
    for _ in 0..<attempts {
      do { return try ResourceSnapshot(in: place) } catch { reason = error }
      try await Task.sleep(for: pause)
    }
    throw UnlistablePlace(path: place.systemPath, reason: reason)
  }

  /// Fails if the resources exceed the bound and stay above it for this long. Cancelled calls may still have work to
  /// do, and idle threads end after some time.
  static func expectBound(
    from first: ResourceSnapshot, in place: URL, _ when: String, since: String, areFilesCounted: Bool = true,
    isMemoryCounted: Bool = false, within time: Duration
  ) async throws {
    let growth = try await excess(
      over: first, in: place, areFilesCounted: areFilesCounted, isMemoryCounted: isMemoryCounted,
      within: time)
    if let growth { throw Violation("\(when) \(growth) \(since)") }
  }

  /// The resources in excess of the bound; nil if there are none, now or within this time.
  static func excess(
    over first: ResourceSnapshot, in place: URL, areFilesCounted: Bool = true,
    isFileSizeCounted: Bool = false,
    isMemoryCounted: Bool = false, within time: Duration
  ) async throws -> String? {
    // Measures less and less often, because each measurement reads whole directories.
    var (left, pause) = (time, Self.pause)
    while true {
      let growth = try await measured(in: place).growth(
        since: first, files: areFilesCounted, fileSize: isFileSizeCounted,
        memory: isFileSizeCounted || isMemoryCounted)
      if growth == nil || left <= .zero { return growth }
      try await Task.sleep(for: pause)
      left -= pause
      pause = min(pause * 2, .milliseconds(500))
    }
  }

  /// How many more descriptors and threads are tolerated.
  static func threadTolerance(processors: Int = ProcessInfo.processInfo.activeProcessorCount) -> Int {
    max(countTolerance, 3 * processors)
  }

  /// The bound as a phrase for the titles of checks.
  static let bound =
    "at most \(countTolerance) more files, and as many more descriptors and threads or three for each processor,"

  private static let attempts = 40
  private static let pause = Duration.milliseconds(50)

  /// The growth in excess of the bound, as a clause; nil if there is none.
  ///
  /// The thread pools of the system, the cooperative one among them, and those of the engine may have a thread for each
  /// processor, and start it when it is first needed. Each thread may have a descriptor.
  func growth(
    since first: ResourceSnapshot, files areFilesCounted: Bool, fileSize isFileSizeCounted: Bool,
    memory isMemoryCounted: Bool, processors: Int = ProcessInfo.processInfo.activeProcessorCount
  ) -> String? {
    let threadTolerance = Self.threadTolerance(processors: processors)
    for (what, now, then, tolerance, isCounted) in [
      ("files in the place and in TMPDIR", files, first.files, Self.countTolerance, areFilesCounted),
      ("file descriptors", descriptors, first.descriptors, threadTolerance, true),
      ("threads", threads, first.threads, threadTolerance, true),
    ] where isCounted && now > then + tolerance {
      return "there were \(now) \(what), compared with \(then)"
    }
    for (what, now, then, isCounted) in [
      ("files", bytes, first.bytes, isFileSizeCounted), ("memory", memory, first.memory, isMemoryCounted),
    ] where isCounted && now > then + Self.byteTolerance {
      return "there were \(now >> 20) MiB of \(what), compared with \(then >> 20) MiB"
    }
    return nil
  }
}

/// How long the checks of leaks wait until resources are freed, before they fail.
package struct ReleaseLimits: Codable, Hashable, Sendable {
  /// How long to wait for threads that end, close files or remove them. They may not run for long on a busy machine.
  package var time = Duration.seconds(16)
  /// How many times 25 MiB are overwritten until disk space and memory must have stopped growing.
  package var stages = 20

  package init() {}

  /// How long to wait for a compaction.
  var timeOfCompaction: Duration { time / 8 }
}

/// The size of an engine's files could not be measured. This says nothing about the engine.
private struct UnlistablePlace: Error, CustomStringConvertible {
  let path: String
  let reason: (any Error)?

  var description: String {
    "the size of the files in \(path) could not be measured, because they could not be listed"
      + (reason.map { ": \($0)" } ?? "")
  }
}

extension System {
  /// The size on disk of each file below a directory, in bytes.
  fileprivate static func fileSizes(below directory: URL) throws -> [Int] {
    let paths = try FileManager.default.subpathsOfDirectory(atPath: directory.systemPath)
    return paths.compactMap { path -> Int? in
      var status = stat()
      // Files may have been removed since they were listed.
      guard lstat(directory.appending(path: path).systemPath, &status) == 0,
        status.st_mode & S_IFMT == S_IFREG
      else { return nil }
      return Int(status.st_blocks) * 512
    }
  }

  /// The number of threads of the process; 0 if the system does not report it.
  fileprivate static var threadCount: Int { statusField("Threads:") }

  /// The private memory of the process in bytes; 0 if the system does not report it.
  fileprivate static var ownMemory: Int { statusField("RssAnon:") * 1_024 }

  private static func statusField(_ name: String) -> Int {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = status.split(whereSeparator: \.isNewline).first { $0.hasPrefix(name) } ?? ""
    return line.split(separator: " ").flatMap { $0.split(separator: "\t") }.dropFirst().first.flatMap {
      Int($0)
    } ?? 0
  }
}
