#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Names of directories: rules O1, C2 and X1.

extension CheckDefinition {
  @CheckList static var pathChecks: [CheckDefinition] {
    Check(
      .o1, "opening.any-name",
      "a directory with any name can be used, and no two names refer to the same directory",
      needs: .persistent
    ) { context in
      let wanted = context.budget.level == .quick ? Array(placeNames.prefix(9)) : placeNames
      let probe = context.root.appending(path: "probe", directoryHint: .isDirectory)
      let names = try names(wanted, knownTo: probe)
      if names.count < wanted.count { context.noteShortfall("\(names.count) of \(wanted.count) names") }
      try await checkNames(names, context)
      try await checkNamesAtOnce(context)
    }
    Check(
      .o1, "opening.relative-path", "a relative path refers to the right directory",
      needs: .persistent
    ) { context in
      let relative = relativePath(to: context.place)
      let engine = try await context.open(relative)
      try await engine.write(data("v"), key: key("k"))
      try await context.close(engine)
      let next = try await context.open()
      try expect(
        try await next.read(key: key("k")), is: data("v"),
        "read(key:) of what was written through a relative path")
      try await context.close(next)
    }
    Check(
      .c2, "opening.twice-by-any-spelling",
      "a place that is opened a second time through links or a relative path is shared, or throws locked",
      needs: .persistent
    ) { try await checkSpellings($0) }
    Check(
      .c3, "processes.by-another-spelling",
      "a place that another process opens through a link is shared with multiProcess, and throws locked "
        + "otherwise",
      needs: .persistent, needsWorker: true
    ) { try await checkSpellingsInWorker($0) }
  }
}

/// Names with a special meaning for a URL, a shell, a normalization or a buffer. Each comes in two forms that may be
/// confused.
private let placeNames: [String] = {
  let long = String(repeating: "n", count: 199)
  return [
    "a#b", "a?b", "100%", "a%20b", "a b", "new\nline", "🗄️ 📦", long + "1", long + "2", "a", "a#c", "a?c",
    "a%2520b",
    "a+b", "%2e%2e", "%", " blank", "blank ", "blank", ".hidden", "dots..", "~", "$HOME", "-rf", "*",
    "semi;colon",
    "\"quoted'", "back\\slash", "file:x", "tab\t", "名前", "ß", "ss",
    "\u{E9}", "e\u{301}", "Case", "case", "\u{212B}", "\u{C5}",
  ]
}()

/// Names that an engine may confuse only while several places are open, such as those that are equal as strings.
private let namesAtOnce = ["\u{E9}", "e\u{301}", "case", "Case", "a b", "a%20b"]

/// The names that the file system supports and distinguishes. Some file systems ignore case or normalization, or refuse
/// characters.
private func names(_ names: [String], knownTo directory: URL) throws -> [String] {
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  let path = directory.systemPath + (directory.systemPath.hasSuffix("/") ? "" : "/")
  let made = names.filter { System.makeDirectory(path + $0) }
  let found = Set(try FileManager.default.contentsOfDirectory(atPath: path).map { Array($0.utf8) })
  return made.filter { found.contains(Array($0.utf8)) }
}

private func checkNames(_ names: [String], _ context: CheckContext) async throws {
  let parent = context.root.appending(path: "names", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
  func place(_ name: String) -> URL {
    URL(
      filePath: parent.systemPath + (parent.systemPath.hasSuffix("/") ? "" : "/") + name,
      directoryHint: .isDirectory)
  }
  for name in names {
    context.noteProgress()
    let what = "the directory \(name.debugDescription)"
    let engine: EngineUnderTest
    do {
      engine = try await context.open(place(name))
      try expect(try await engine.keyCount(), is: 0, "keyCount() in \(what), which was new,")
      try await engine.write(data(name), key: key("name"))
      try await context.close(engine)
    } catch let failure as CallFailure {
      throw Violation("for \(what), \(failure)")
    }
  }
  let made = try FileManager.default.contentsOfDirectory(atPath: parent.systemPath)
  // Compares bytes, because strings are compared by canonical equivalence.
  let (found, wanted) = (Set(made.map { Array($0.utf8) }), Set(names.map { Array($0.utf8) }))
  if let surplus = found.subtracting(wanted).first {
    throw Violation(
      "next to the directories on which it was opened, there was "
        + "\(String(decoding: surplus, as: UTF8.self).debugDescription)"
    )
  }
  for name in names where !found.contains(Array(name.utf8)) {
    throw Violation("the engine was opened on \(name.debugDescription), but there was no such directory")
  }
  for name in names {
    context.noteProgress()
    let engine = try await context.open(place(name))
    try expect(
      try await engine.read(key: key("name")), is: data(name),
      "read(key:) in the directory \(name.debugDescription)")
    try await context.close(engine)
  }
}

/// Opens places with similar names at the same time.
private func checkNamesAtOnce(_ context: CheckContext) async throws {
  let probe = context.root.appending(path: "second probe", directoryHint: .isDirectory)
  let known = try names(namesAtOnce, knownTo: probe)
  let parent = context.root.appending(path: "names at once", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
  let path = parent.systemPath + (parent.systemPath.hasSuffix("/") ? "" : "/")
  var engines: [EngineUnderTest] = []
  for name in known {
    context.noteProgress()
    let engine = try await context.open(URL(filePath: path + name, directoryHint: .isDirectory))
    try await engine.write(data(name), key: key("name"))
    engines.append(engine)
  }
  for (name, engine) in zip(known, engines) {
    try expect(
      try await engine.read(key: key("name")), is: data(name),
      "read(key:) in the directory \(name.debugDescription), beside others that were open,")
  }
  for engine in engines { try await context.close(engine) }
}

/// A path relative to the working directory.
private func relativePath(to directory: URL) -> URL {
  let levels = FileManager.default.currentDirectoryPath.split(separator: "/").count
  let path =
    String(repeating: "../", count: levels)
    + directory.resolvingSymlinksInPath().systemPath.drop { $0 == "/" }
  return URL(filePath: path, directoryHint: .isDirectory)
}

/// Other paths to the place.
private func spellings(_ context: CheckContext) throws -> [(name: String, url: URL)] {
  let (link, second) = (
    context.root.appending(path: "link to it"), context.root.appending(path: "link to a link")
  )
  let middle = context.root.appending(path: "link in the middle")
  try System.makeLink(at: link, to: context.place)
  try System.makeLink(at: second, to: link)
  try System.makeLink(at: middle, to: context.root.appending(path: "deep/down"))
  let doubled = context.place.systemPath.replacing("/deep/", with: "//deep/./")
  return [
    ("a link", link), ("a link to a link", second),
    ("a link in the middle", middle.appending(path: "in/here/place", directoryHint: .isDirectory)),
    ("a relative path", relativePath(to: context.place)),
    ("a path with two slashes", URL(filePath: doubled, directoryHint: .isDirectory)),
  ]
}

private func checkSpellings(_ context: CheckContext) async throws {
  for (number, spelling) in try spellings(context).enumerated() {
    let engine = try await context.open()
    try await engine.write(data("1"), key: key("\(number) here"))
    if let other = try await context.openUnlessLocked(spelling.url) {
      do {
        try await expectStored([(key("\(number) here"), data("1"))], in: other)
        try await expectHeard(by: engine, context, key("\(number) there")) {
          try await other.write(data("2"), key: $0)
        }
        try await expectStored([(key("\(number) there"), data("2"))], in: engine)
        try await expectHeard(by: other, context, key("\(number) here")) {
          try await engine.write(data("3"), key: $0)
        }
        try await expectStored([(key("\(number) here"), data("3"))], in: other)
      } catch let violation as Violation {
        throw Violation(
          "when the place was also opened through \(spelling.name), \(violation.description)",
          rule: violation.rule)
      }
      try await context.close(other)
    }
    try await context.close(engine)
    let later = try await context.open(spelling.url)
    try expect(
      try await later.keyExists(key("\(number) here")),
      "an engine that was opened through \(spelling.name) did not find what had been written")
    try await context.close(later)
  }
}

/// Changes the entry. Fails, by rule X1, unless a subscriber of the engine receives the change. Without feeds, it only
/// makes the change.
private func expectHeard(
  by engine: EngineUnderTest, _ context: CheckContext, _ key: CacheKey,
  _ change: (CacheKey) async throws -> Void
) async throws {
  guard context.capabilities.contains(.changeFeed) else { return try await change(key) }
  let subscriber = try await ChangeSubscriber(to: engine, context)
  try await change(key)
  do {
    try await subscriber.expectCovered([key], "a write by the other engine")
  } catch let violation as Violation {
    throw Violation(violation.description, rule: .x1)
  }
}

private func checkSpellingsInWorker(_ context: CheckContext) async throws {
  let spellings = try spellings(context).filter { !$0.url.systemPath.hasPrefix("..") }
  let engine = try await context.open()
  try await engine.write(data("1"), key: key("here"))
  try await context.withWorker { worker in
    for spelling in spellings {
      context.noteProgress()
      do {
        try await worker.perform(CallEngine(.open, at: spelling.url))
      } catch let error as WorkerError where error.code == StorageError.Code.locked.name {
        if context.capabilities.contains(.multiProcess) {
          throw Violation("opening it in another process through \(spelling.name) threw locked")
        }
        continue
      }
      guard context.capabilities.contains(.multiProcess) else {
        throw Violation("another process could open it through \(spelling.name)")
      }
      let sent = SharedWork.Entry(key: spelling.name, data: data("2"))
      try await worker.perform(CallEngine(.write([sent]), at: spelling.url))
      try await expectStored([(key(spelling.name), data("2"))], in: engine)
      try await worker.perform(CallEngine(.close, at: spelling.url))
    }
  }
}
