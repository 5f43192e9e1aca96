import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// What a process holds on to after many calls, in a process that does nothing else.
struct ResourceBounds: CheckTask {
  enum Question: String, Codable, Sendable, CaseIterable {
    case calls, errors, cancellations, overwrites

    var name: String {
      switch self {
      case .calls: "leaves-nothing-after-calls"
      case .errors: "leaves-nothing-after-errors"
      case .cancellations: "leaves-nothing-after-cancelled-calls"
      case .overwrites: "gives-room-back"
      }
    }

    var expectation: String {
      let bound = "no more than \(Holdings.slack) more files, descriptors and threads"
      return switch self {
      case .calls: "after a thousand calls of every kind there are \(bound) than after the first 250"
      case .errors: "after a thousand calls that throw there are \(bound) than after the first 250"
      case .cancellations:
        "after a thousand calls that were cancelled there are \(bound) than after the first 250"
      case .overwrites:
        "after overwrites of few keys with 100 MiB the files and the memory are no more than 64 MiB larger than what is "
          + "stored, and there are \(bound) than before"
      }
    }
  }

  let place: URL
  let question: Question
  let level: ConformanceBudget.Level

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    try note("opening the engine")
    let engine = EngineUnderTest(try await makeEngine(place))
    try await engine.write(entries(Self.keys))
    switch question {
    case .calls: try await rounds("calls", note) { try await call(engine, $0) }
    case .errors: try await rounds("calls that throw", note) { try await fail(engine, $0) }
    case .cancellations: try await rounds("calls that were cancelled", note) { try await cancel(engine, $0) }
    case .overwrites: try await overwrite(engine, note)
    }
    try await engine.close()
  }

  private static let keys = ConformanceKit.keys(16)

  // MARK: - Calls

  /// Makes 250 calls at a time, and compares what is held after the first with what is held after all.
  private func rounds(
    _ what: String, _ note: (String) throws -> Void, _ call: (Int) async throws -> Void
  ) async throws {
    var first: Holdings?
    let count = level == .exhaustive ? 40 : 4
    for round in 1...count {
      try note("\(round * 250) \(what)")
      for number in 0..<250 { try await call(round * 250 + number) }
      guard let first else {
        first = try await Holdings.measured(in: place)
        continue
      }
      try await Holdings.expectBound(
        from: first, in: place, "after \(round * 250) \(what)", since: "after 250")
    }
  }

  private func call(_ engine: EngineUnderTest, _ number: Int) async throws {
    let key = Self.keys[number % Self.keys.count]
    switch number % 12 {
    case 0: try await engine.write(value(for: key, version: number), key: key)
    case 1: _ = try await engine.read(key: key)
    case 2: _ = try await engine.read(keys: Self.keys)
    case 3: _ = try await engine.readAllEntries()
    case 4: _ = try await engine.scan(.all, limit: 3)
    case 5: _ = try await engine.keysExist(Self.keys)
    case 6: _ = try await engine.allKeys()
    case 7: _ = try await engine.updatedAt(key: key)
    case 8: try await engine.write(entries([key, Self.keys[0]], version: number))
    case 9: try await engine.apply([.remove(key: key), .write(value(for: key), key: key)])
    case 10: try await engine.remove(key: ConformanceKit.key("absent"))
    default: _ = try await engine.readAllDataAndKeys()
    }
  }

  /// Makes a call with a key that is not allowed.
  private func fail(_ engine: EngineUnderTest, _ number: Int) async throws {
    let (bad, good) = (ConformanceKit.key(""), Self.keys[0])
    func fails(_ call: () async throws -> Void) async throws {
      do { try await call() } catch { return }
      throw Violation("a call with an empty key returned", rule: .k1)
    }
    switch number % 6 {
    case 0: try await fails { try await engine.write(data("v"), key: bad) }
    case 1: try await fails { try await engine.write([(good, data("v")), (bad, data("v"))]) }
    case 2: try await fails { try await engine.apply([.remove(key: good), .remove(key: bad)]) }
    case 3: try await fails { _ = try await engine.read(key: bad) }
    case 4: try await fails { try await engine.remove(keys: [good, bad]) }
    default: try await fails { _ = try await engine.readDataAndKeys(keys: [good, bad]) }
    }
  }

  /// Makes a call in a task that is cancelled before it, or a little later.
  private func cancel(_ engine: EngineUnderTest, _ number: Int) async throws {
    let task = Task { @concurrent in
      if number % 3 == 0 { withUnsafeCurrentTask { $0?.cancel() } }
      try await call(engine, number)
    }
    for _ in 0..<number % 3 { await Task.yield() }
    task.cancel()
    // What a cancelled call may throw is for rule C4 to say.
    _ = await task.result
  }

  // MARK: - Room

  private func overwrite(_ engine: EngineUnderTest, _ note: (String) throws -> Void) async throws {
    let before = try await Holdings.measured(in: place)
    let megabytes = level == .exhaustive ? 1_000 : 100
    for number in 0..<megabytes {
      try note("writing MiB \(number + 1)")
      try await engine.write(
        Self.keys.enumerated().map {
          ($0.element, noise(64 << 10, seed: UInt64(number * 16 + $0.offset + 1)))
        })
      if number % 8 == 7 { try await engine.remove(keys: Array(Self.keys.prefix(8))) }
    }
    try await Holdings.expectBound(
      from: before, in: place,
      "after \(megabytes) MiB written to \(Self.keys.count) keys, of which 1 MiB is stored,",
      since: "before", isRoomCounted: true)
  }
}

/// What a process and a directory hold.
struct Holdings {
  /// How many more files, descriptors and threads are not counted as a growth.
  static let slack = 50
  /// How many more bytes of files and of memory are not.
  static let room = 64 << 20

  private let files: Int
  private let bytes: Int
  private let descriptors: Int
  private let threads: Int
  private let memory: Int

  /// - Parameter place: The directory of the engine.
  /// - Throws: What kept it from being listed: among other things, that files come and go.
  private init(in place: URL) throws {
    let sizes = try System.fileSizes(below: place)
    (files, bytes) = (sizes.count, sizes.reduce(0, +))
    (descriptors, threads, memory) = (System.descriptorCount, System.threadCount, System.ownMemory)
  }

  /// What is held, once the files can be listed.
  ///
  /// - Throws: ``UnlistablePlace`` if they cannot for a while.
  static func measured(in place: URL) async throws -> Holdings {
    var reason: (any Error)?
    for _ in 0..<attempts {
      do { return try Holdings(in: place) } catch { reason = error }
      try await Task.sleep(for: pause)
    }
    throw UnlistablePlace(path: place.systemPath, reason: reason)
  }

  /// Fails if more is held than the bound allows, and that does not change for a while: what was cancelled may still have
  /// something to do, and threads end when they have nothing to do.
  static func expectBound(
    from first: Holdings, in place: URL, _ when: String, since: String, isRoomCounted: Bool = false,
    isMemoryCounted: Bool = false
  ) async throws {
    var growth: String?
    for _ in 0..<attempts {
      growth = try await measured(in: place).growth(
        since: first, files: isRoomCounted, memory: isRoomCounted || isMemoryCounted)
      if growth == nil { return }
      try await Task.sleep(for: pause)
    }
    if let growth { throw Violation("\(when) \(growth) \(since)") }
  }

  private static let attempts = 40
  private static let pause = Duration.milliseconds(50)

  private func growth(
    since first: Holdings, files isFileSizeCounted: Bool, memory isMemoryCounted: Bool
  ) -> String? {
    for (what, now, then) in [
      ("files in the place", files, first.files), ("file descriptors", descriptors, first.descriptors),
      ("threads", threads, first.threads),
    ] where now > then + Self.slack {
      return "there were \(now) \(what), and \(then)"
    }
    for (what, now, then, isCounted) in [
      ("files", bytes, first.bytes, isFileSizeCounted), ("memory", memory, first.memory, isMemoryCounted),
    ] where isCounted && now > then + Self.room {
      return "there were \(now >> 20) MiB of \(what), and \(then >> 20) MiB"
    }
    return nil
  }
}

/// What the files of an engine take could not be measured. It says nothing about the engine.
private struct UnlistablePlace: Error, CustomStringConvertible {
  let path: String
  let reason: (any Error)?

  var description: String {
    "what the files in \(path) take could not be measured, as they could not be listed"
      + (reason.map { ": \($0)" } ?? "")
  }
}

extension System {
  /// The size of each file below a directory, in bytes on the disk.
  fileprivate static func fileSizes(below directory: URL) throws -> [Int] {
    let paths = try FileManager.default.subpathsOfDirectory(atPath: directory.systemPath)
    return paths.compactMap { path -> Int? in
      var status = stat()
      // What was removed since it was listed is not there any more.
      guard lstat(directory.appending(path: path).systemPath, &status) == 0,
        status.st_mode & S_IFMT == S_IFREG
      else { return nil }
      return Int(status.st_blocks) * 512
    }
  }

  /// How many threads the process has; 0 where the system does not tell.
  fileprivate static var threadCount: Int { statusField("Threads:") }

  /// How many bytes of memory the process has for itself alone; 0 where the system does not tell.
  fileprivate static var ownMemory: Int { statusField("RssAnon:") * 1_024 }

  private static func statusField(_ name: String) -> Int {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = status.split(whereSeparator: \.isNewline).first { $0.hasPrefix(name) } ?? ""
    return line.split(separator: " ").flatMap { $0.split(separator: "\t") }.dropFirst().first.flatMap {
      Int($0)
    } ?? 0
  }
}
