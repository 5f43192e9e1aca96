#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Many tasks, and one place opened twice: rules C1 and C2. The other rules of this section are in separate
// files.

extension CheckDefinition {
  @CheckList static var concurrencyChecks: [CheckDefinition] {
    Check(.c1, "concurrency.loses-no-write", "no write of many tasks to different keys is lost") {
      context in
      let engine = try await context.open()
      let written = try await gather(0..<32) { task in
        let keys = keys(20, prefix: "task-\(task)-")
        for key in keys.prefix(10) { try await engine.write(value(for: key), key: key) }
        try await engine.write(entries(Array(keys.suffix(10))))
        return keys
      }
      try await expectStored(entries(written.flatMap { $0 }), in: engine)
      try await checkFirstCallsAtOnce(context)
    }
    Check(
      .c1, "concurrency.reads-own-writes", "a task reads its own writes, whatever other tasks do"
    ) {
      context in
      let engine = try await context.open()
      try await gather(0..<16) { task in
        let mine = key("task-\(task)")
        for version in 1...20 {
          try await engine.write(value(for: mine, version: version), key: mine)
          let found = try await engine.read(key: mine)
          try expect(
            found, is: value(for: mine, version: version),
            "read(key:) of a key that the same task had written")
          if version.isMultiple(of: 5) {
            try await engine.remove(key: mine)
            try expect(
              try await engine.read(key: mine), is: nil, "read(key:) of a key that the same task had removed")
          }
        }
      }
      try await gather(0..<16) { try await askForOwnKeys($0, engine) }
    }
    Check(
      .c1, "concurrency.reads-never-go-back",
      "once a version has been read or acknowledged, no later read returns an earlier one"
    ) { context in
      try await checkMonotonicReads(in: try await context.open())
    }
    Check(
      .c1, "concurrency.one-key", "many tasks that write one key leave one entry with one of their values"
    ) {
      context in
      let engine = try await context.open()
      let shared = key("shared")
      @Sendable func valueOfTask(_ task: Int) -> Data {
        Data(repeating: UInt8(ascii: "a") + UInt8(task), count: 1_000 + task)
      }
      for _ in 0..<5 {
        try await engine.removeAllData()
        try await gather(0..<24) { task in
          try await engine.write(valueOfTask(task), key: shared)
        }
        guard let value = try await engine.read(key: shared) else {
          throw Violation("read(key:) after 24 concurrent writes of one key returned nil")
        }
        let isOneOfThem = (0..<24).contains { valueOfTask($0) == value }
        try expect(isOneOfThem, "after 24 concurrent writes of one key its value was none of the 24")
        let count = try await engine.allKeys().count
        try expect(count, is: 1, "the number of keys after 24 concurrent writes of one key")
      }
    }
    Check(
      .c1, "concurrency.everything-agrees",
      "after many tasks have written, removed and read in every way, all methods show the same entries, and "
        + "lists that were made meanwhile have what nobody touched"
    ) { context in
      let engine = try await context.open()
      let shared = keys(24)
      try await gather(0..<16) { task in
        for step in 0..<12 {
          try await runConcurrentCalls(engine, shared, task: task, step: step)
          context.noteProgress()
        }
      }
      for key in shared {
        let exists = try await engine.read(key: key) != nil
        try expect(try await engine.keyExists(key), is: exists, "keyExists(_:) of \(key)")
        try expect(
          try await engine.createdAt(key: key) != nil, is: exists,
          "whether createdAt(key:) of \(key) is not nil")
        try expect(
          try await engine.scan(KeyRange(after: nil, upTo: key), limit: nil).last?.key == key, is: exists,
          "whether scan(_:limit:) finds \(key)")
      }
      try await checkListsBesideChanges(context)
      try await checkReadsBesideOverwrites(context)
    }
    Check(
      .c1, "concurrency.counts", "counts are right after many tasks have written and removed their own keys"
    ) {
      context in
      let engine = try await context.open()
      let left = try await gather(0..<16) { task in
        let keys = keys(12, prefix: "task-\(task)-")
        try await engine.write(entries(keys))
        try await engine.remove(keys: Array(keys.prefix(4)))
        try await engine.apply([.remove(key: keys[4])])
        try await engine.remove(key: keys[5])
        _ = try await engine.keyCount()
        return Array(keys.suffix(6))
      }
      try await expectStored(entries(left.flatMap { $0 }), in: engine)
      try expect(try await engine.keyCount(), is: 16 * 6, "keyCount()")
    }

    Check(
      .c1, "concurrency.of-hundreds-of-tasks",
      "up to two hundred tasks that call every method at the same time all get correct results"
    ) { context in
      let engine = try await context.open()
      let shared = keys(24)
      // A third of them read everything, so the cost grows with the number of entries.
      let affordable = Double(try await context.affordableEntries().reads)
      let taskCount = min(200, max(24, Int((2 * affordable).squareRoot())))
      if taskCount < 200 { context.noteShortfall("\(taskCount) of 200 tasks") }
      let own = try await gather(0..<taskCount) { task in
        let mine = key("task-\(task)")
        try await engine.write(value(for: mine), key: mine)
        for step in 0..<3 {
          try await runConcurrentCalls(engine, shared, task: task, step: step)
          context.noteProgress()
        }
        let found = try await engine.read(key: mine)
        try expect(
          found, is: value(for: mine),
          "beside many other tasks read(key:) of a key that the same task had written")
        return mine
      }
      try await expectStored(entries(own), in: engine)
      try await askForSameKeysDifferently(engine)
    }

    Check(
      .c2, "opening.twice", "two engines on one place share it, or the second open throws locked",
      needs: .persistent
    ) { context in
      try await checkSecondOpening(context, at: context.place)
    }
    Check(
      .c2, "opening.twice-by-another-path",
      "two engines on one place, opened through different paths, share it, or the second open throws locked; "
        + "two directories with the same name are two places",
      needs: .persistent,
      isOfFiles: true
    ) { context in
      let link = context.root.appending(path: "link")
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: context.place)
      for path in ["link", "deep/../deep/down/in/here/place", "link/."] {
        try await checkSecondOpening(
          context, at: context.root.appending(path: path, directoryHint: .isDirectory))
      }
      try await checkEqualNames(context)
    }
    Check(
      .c2, "opening.twice-under-load",
      "concurrent writes of two engines on one place are not lost",
      needs: .persistent
    ) { context in
      let first = try await context.open()
      guard let second = try await context.openUnlessLocked(context.place) else { return }
      try await gather(0..<8) { task in
        let engine = task.isMultiple(of: 2) ? first : second
        for key in keys(15, prefix: "task-\(task)-") { try await engine.write(value(for: key), key: key) }
      }
      let all = (0..<8).flatMap { keys(15, prefix: "task-\($0)-") }
      try await expectStored(entries(all), in: first)
      try await expectStored(entries(all), in: second)
      try await context.close(first)
      try await context.close(second)
      let engine = try await context.open()
      try await expectStored(entries(all), in: engine)
      guard let another = try await context.openUnlessLocked(context.place) else { return }
      try await engine.removeAllData()
      try await checkReadsBesideAnother(engine, context) { changes in
        try await changes.perform(on: another) { context.noteProgress() }
      }
    }
  }
}

/// One of many kinds of calls that run concurrently on an engine.
private func runConcurrentCalls(_ engine: EngineUnderTest, _ keys: [CacheKey], task: Int, step: Int)
  async throws
{
  let mine = keys[(task * 5 + step * 7) % keys.count]
  let other = keys[(task * 11 + step * 3) % keys.count]
  switch (task + step) % 8 {
  case 0, 1: try await engine.write(data("\(task) \(step)"), key: mine)
  case 2: try await engine.write([(mine, data("\(task) \(step)")), (other, data("\(step) \(task)"))])
  case 3: try await engine.remove(key: mine)
  case 4: try await engine.apply([.remove(key: mine), .write(data("\(task)"), key: other)])
  case 5: _ = try await engine.readAllEntries()
  case 6: _ = try await engine.scan(.all, limit: 5)
  default: try await engine.remove(keys: [mine, other])
  }
}

/// One writer for each key, which counts up; the readers remember the numbers that they have read.
private func checkMonotonicReads(in engine: EngineUnderTest) async throws {
  let keys = keys(4)
  let acknowledged = MutexProtected([Int](repeating: 0, count: 4))
  for key in keys { try await engine.write(data("0"), key: key) }
  try await whileRunning {
    try await gather(0..<4) { index in
      for version in 1...60 {
        try await engine.write(data("\(version)"), key: keys[index])
        acknowledged.withLock { $0[index] = version }
      }
    }
  } readers: { reader in
    for index in [0, 1, 2, 3, 3, 2, 1, 0].map({ ($0 + reader) % 4 }) {
      let earliest = acknowledged.withLock { $0[index] }
      let value = try await engine.read(key: keys[index]).map { String(decoding: $0, as: UTF8.self) }
      guard let version = value.flatMap({ Int($0) }) else {
        throw Violation("read(key:) of a key that was never removed returned \(value ?? "nil")")
      }
      try expect(
        version >= earliest,
        "read(key:) returned version \(version) after version \(earliest) had been acknowledged or read")
      acknowledged.withLock { $0[index] = max($0[index], version) }
    }
  }
}

/// Opens a second engine on the place, and checks that both together follow the contract like one engine.
private func checkSecondOpening(_ context: CheckContext, at path: URL) async throws {
  let first = try await context.open()
  try await first.write(value(for: key("a")), key: key("a"))
  guard let second = try await context.openUnlessLocked(path) else {
    try await first.write(value(for: key("b")), key: key("b"))
    try await context.close(first)
    let next = try await context.open(path)
    try await expectStored(entries([key("a"), key("b")]), in: next)
    try await next.removeAllData()
    return try await context.close(next)
  }
  try expect(
    try await second.read(key: key("a")), is: value(for: key("a")),
    "read(key:) of what had been written before the second engine was opened")
  for version in 2...6 {
    let (writer, reader) = version.isMultiple(of: 2) ? (second, first) : (first, second)
    let batch = entries([key("a"), key("b"), key("new \(version)")], version: version)
    try await writer.write(batch)
    try await expectStored(batch, in: reader)
    try await expectStored(batch, in: writer)
    try await reader.remove(key: key("new \(version)"))
    try expect(
      try await writer.keyExists(key("new \(version)")), is: false, "keyExists(_:) in the other engine")
  }
  try await context.close(first)
  try await second.write(data("after"), key: key("a"))
  try expect(
    try await second.read(key: key("a")), is: data("after"), "read(key:) after the other engine was closed")
  if let third = try await context.openUnlessLocked(context.place) {
    for (number, (writer, reader)) in [(second, third), (third, second)].enumerated() {
      try await writer.write(data("third \(number)"), key: key("a"))
      try expect(
        try await reader.read(key: key("a")), is: data("third \(number)"),
        "read(key:) of one of two engines, the other of which was opened after a third had been closed,")
    }
    try await context.close(third)
  }
  if let fourth = try await context.openUnlessLocked(context.place) {
    try await fourth.write(data("fourth"), key: key("a"))
    fourth.release()
    for number in 0..<2 {
      try expect(
        try await second.read(key: key("a")), is: data("fourth"),
        "read(key:) of what another engine had written that was released without close()")
      try await second.write(data("\(number)"), key: key("b"))
      try expect(
        try await second.read(key: key("b")), is: data("\(number)"),
        "read(key:) after another engine was released without close()")
    }
  }
  try await second.removeAllData()
  try await context.close(second)
}

/// Opens two directories with the same name, which are two places.
private func checkEqualNames(_ context: CheckContext) async throws {
  var engines: [EngineUnderTest] = []
  for path in ["one/shared", "another/shared"] {
    engines.append(
      try await context.open(context.root.appending(path: path, directoryHint: .isDirectory)))
  }
  for (number, engine) in engines.enumerated() {
    try expect(
      try await engine.read(key: key("k")), is: nil,
      "read(key:) of what was written to another directory with the same name")
    try await engine.write(data("\(number)"), key: key("k"))
  }
  try expect(
    try await engines[0].read(key: key("k")), is: data("0"),
    "read(key:) after a write to another directory with the same name")
  for engine in engines { try await context.close(engine) }
}

extension CheckContext {
  /// An engine on the place, and a second one if both would share their contents and the place can be opened twice.
  func openTwiceIfPossible() async throws -> [EngineUnderTest] {
    let engine = try await open()
    return try await [engine, openAnotherIfPossible()].compactMap { $0 }
  }

  /// Another engine on a place that is open. Nil if the two would not share their contents, or the place cannot be
  /// opened twice.
  func openAnotherIfPossible(at directory: URL? = nil) async throws -> EngineUnderTest? {
    guard capabilities.contains(.persistent) else { return nil }
    return try await openUnlessLocked(directory ?? place)
  }

  /// A second engine on a place that is open. Nil if opening throws `locked`, which is allowed.
  func openUnlessLocked(_ directory: URL) async throws -> EngineUnderTest? {
    do {
      return try await open(directory)
    } catch let failure as CallFailure {
      if let error = failure.error as? StorageError, error.code == .locked { return nil }
      throw Violation("the second open threw \(failure.error), not locked")
    }
  }
}
