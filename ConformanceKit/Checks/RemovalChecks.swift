#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Removing and counting: rules D1, D2, L1 and L2.

extension CheckDefinition {
  @CheckList static var removalChecks: [CheckDefinition] {
    Check(.d1, "removal.of-absent-keys", "removing absent keys does nothing and does not throw") { context in
      let engine = try await context.open()
      for expected in [[], entries(keys(3))] {
        try await engine.write(expected)
        try await engine.remove(key: key("absent"))
        try await engine.remove(keys: [key("absent"), key("absent too"), key("absent")])
        try await engine.apply([.remove(key: key("absent"))])
        try await expectStored(expected, absent: [key("absent"), key("absent too")], in: engine)
      }
    }
    Check(.d1, "removal.twice", "removing a key twice, even in one batch, is the same as once") {
      context in
      let engine = try await context.open()
      try await engine.write(entries(keys(4)))
      try await engine.remove(key: keys(4)[0])
      try await engine.remove(key: keys(4)[0])
      try await engine.remove(keys: [keys(4)[1], keys(4)[1], keys(4)[0]])
      try await engine.apply([.remove(key: keys(4)[2]), .remove(key: keys(4)[2])])
      try await expectStored(entries([keys(4)[3]]), absent: Array(keys(4).prefix(3)), in: engine)
    }
    Check(
      .d1, "removal.of-many",
      "remove(keys:) of tens of thousands of keys removes those that exist and no others"
    ) { context in
      let engine = try await context.open()
      let count = try await context.affordableCount(context.keysOfARequest, of: "keys")
      let keys = keys(count)
      let present = keys.enumerated().filter { $0.offset % (count / 200) == 0 }.map(\.element)
      try await engine.write(entries(present) + entries([key("kept")]))
      try await engine.remove(keys: keys)
      context.noteProgress()
      try await expectStored(entries([key("kept")]), absent: present, in: engine)
    }

    Check(.d2, "removal.of-everything", "removeAllData() leaves an empty, usable engine") {
      context in
      let engine = try await context.open()
      try await engine.removeAllData()
      try await expectEmpty(engine)
      for round in 1...2 {
        try await engine.write(entries(AdversarialKeys.all + keys(300), version: round))
        context.noteProgress()
        try await engine.removeAllData()
        context.noteProgress()
        try await expectEmpty(engine)
        let absent = try await engine.createdAt(key: keys(300)[0])
        try expect(absent, is: nil, "createdAt(key:) after removeAllData()")
      }
      try await engine.write(entries(keys(3)))
      try await expectStored(entries(keys(3)), in: engine)
    }
    Check(
      .d2, "removal.spares-foreign-files",
      "files of others in the directory are kept, and are no entries"
    ) { context in
      try await checkForeignFiles(context)
      try await checkLookalikeFiles(context)
    }

    Check(
      .l1, "counting.which-keys-exist", "keysExist(_:) returns the existing keys in the order of the request"
    ) {
      context in
      let engine = try await context.open()
      let keys = keys(40)
      let present = keys.enumerated().filter { $0.offset % 3 != 0 }.map(\.element)
      try await engine.write(entries(present))
      try expect(try await engine.keysExist(keys), is: present, "keysExist(_:)")
      try expect(
        try await engine.keysExist(keys.reversed()), is: present.reversed(), "keysExist(_:) backwards")
      try expect(try await engine.keysExist([]), is: [], "keysExist(_:) of no keys")
      try expect(try await engine.keysExist([keys[0], keys[3]]), is: [], "keysExist(_:) of absent keys")
    }
    Check(
      .l1, "counting.which-of-many-exist", "keysExist(_:) works with tens of thousands of keys"
    ) { context in
      let engine = try await context.open()
      let count = try await context.affordableCount(
        context.keysOfARequest, of: "keys", onlyReads: true)
      let keys = keys(count)
      let step = max(count / 250, 8)
      let present = keys.enumerated().filter { $0.offset % step == 7 }.map(\.element)
      try await engine.write(entries(present))
      context.noteProgress()
      try expect(try await engine.keysExist(keys), is: present, "keysExist(_:) of \(count) keys")
    }

    Check(.l2, "counting.after-changes", "keyCount() counts keys, not writes, after every kind of change") {
      context in
      let engine = try await context.open()
      let keys = keys(30)
      func expectCount(_ count: Int, _ what: String) async throws {
        try expect(try await engine.keyCount(), is: count, "keyCount() after \(what)")
        try expect(
          try await engine.allKeys().count, is: count, "the number of keys in allKeys() after \(what)")
      }
      try await expectCount(0, "opening")
      for key in keys.prefix(10) { try await engine.write(data("v"), key: key) }
      try await expectCount(10, "10 writes")
      try await engine.write(entries(keys))
      try await expectCount(30, "a batch of 30, of which 10 were there")
      try await engine.write([(keys[0], data("1")), (keys[0], data("2")), (key("new"), data("3"))])
      try await expectCount(31, "a batch with a repeated key")
      try await engine.remove(key: keys[0])
      try await engine.remove(key: keys[0])
      try await expectCount(30, "a key was removed twice")
      try await engine.remove(keys: [keys[1], keys[1], keys[2], key("absent")])
      try await expectCount(28, "a batch of removals")
      try await engine.apply([
        .write(data("v"), key: keys[3]), .remove(key: keys[4]), .remove(key: keys[5]),
        .write(data("v"), key: keys[5]), .write(data("v"), key: keys[1]), .remove(key: key("absent")),
      ])
      try await expectCount(28, "an apply(_:) with one removal and one new key")
      try await engine.apply([.removeAll, .write(data("v"), key: keys[7])])
      try await expectCount(1, "an apply(_:) with removeAll")
      try await engine.removeAllData()
      try await expectCount(0, "removeAllData()")
    }
    Check(.l2, "counting.after-reopening", "keyCount() is right after reopening", needs: .persistent) {
      context in
      let engine = try await context.open()
      try await engine.write(entries(keys(25)))
      try await engine.write(entries(Array(keys(25).prefix(5)), version: 2))
      try await engine.remove(keys: Array(keys(25).suffix(4)))
      let reopened = try await context.reopen(engine)
      try expect(try await reopened.keyCount(), is: 21, "keyCount()")
      try await wayOfImporting.write(reopened, entries([keys(25)[0], key("imported")], version: 3))
      var count = 22
      if context.capabilities.contains(.transactions) {
        try await reopened.withTransaction { transaction in
          for key in keys(25).prefix(3) { try transaction.remove(key: key) }
          try transaction.write(data("v"), key: key("by a body"))
          try transaction.write(data("v"), key: keys(25)[0])
        }
        count = 21
      }
      try expect(
        try await context.reopen(reopened).keyCount(), is: count,
        "keyCount() after an import, a transaction and reopening")
    }
  }
}

extension CheckContext {
  /// From the level standard on, more different keys than the maximum number of parameters of a statement in any
  /// database.
  fileprivate var keysOfARequest: Int { byLevel(quick: 10_000, standard: 70_000, exhaustive: 70_000) }
}

/// - Parameter files: Files of others in the engine's directory.
private func expectUnchanged(_ files: [URL], _ when: String) throws {
  for file in files {
    try expect(
      (try? Data(contentsOf: file)) == data("not yours"),
      "\(file.lastPathComponent), a file of others in the directory, was removed or changed \(when)")
  }
}

/// Puts foreign files among the engine's files, then lets the engine work and remove everything.
private func checkForeignFiles(_ context: CheckContext) async throws {
  let subdirectory = context.place.appending(path: "holiday pictures", directoryHint: .isDirectory)
  let files = [
    context.place.appending(path: "shopping list.txt"), subdirectory.appending(path: "beach.jpeg"),
    context.place.appending(path: ".hidden note"),
  ]
  try FileManager.default.createDirectory(at: subdirectory, withIntermediateDirectories: true)
  for file in files { try data("not yours").write(to: file) }

  var engine: EngineUnderTest
  do {
    engine = try await context.open()
  } catch let failure as CallFailure where failure.error is StorageError {
    // An engine may refuse a directory with files of others.
    return try expectUnchanged(files, "by an opening that threw")
  }
  try await expectEmpty(engine)
  try await engine.write(entries(keys(20)))
  try await engine.write(data("v"), key: key("shopping list.txt"))
  try await engine.remove(key: key("shopping list.txt"))
  try await expectStored(entries(keys(20)), absent: [key("shopping list.txt")], in: engine)
  try await engine.removeAllData()
  try await expectEmpty(engine)
  engine = try await context.reopen(engine)
  try await expectEmpty(engine)
  try expectUnchanged(files, "after removeAllData()")
}

/// Puts files next to the engine's files with the names of the engine's files, or of leftovers of them. An engine may
/// take them for corrupted files or for entries, and need not open or be readable then, but it must not change them.
private func checkLookalikeFiles(_ context: CheckContext) async throws {
  let sample = context.root.appending(path: "sample", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: sample, withIntermediateDirectories: true)
  let own = try await context.open(sample)
  try await own.write(entries(keys(20)))
  try await own.write(noise(100_000), key: key("large"))
  var paths = try FileManager.default.subpathsOfDirectory(atPath: sample.systemPath)
  try await context.close(own)
  // Some engines have other files while no process has them open.
  paths += try FileManager.default.subpathsOfDirectory(atPath: sample.systemPath)
  var names = Set(paths.compactMap(endingOfName).map { "notes." + $0 })
  names.formUnion(["notes.tmp", "notes~", "notes.lock", "notes.bak", "notes-journal"])

  let place = context.root.appending(path: "among lookalikes", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
  let files = names.sorted().map { place.appending(path: $0) }
  for file in files { try data("not yours").write(to: file) }
  let engine: EngineUnderTest
  do {
    engine = try await context.open(place)
  } catch is CallFailure {
    return try expectUnchanged(files, "after an opening that threw")
  }
  guard await findsNothing(engine) else {
    try expectUnchanged(files, "after an opening")
    try await useAmongLookalikes(engine)
    // Otherwise all methods that read would be compared at the end, and some may throw.
    try await context.close(engine)
    return try expectUnchanged(files, "after changes of other entries")
  }
  try await engine.write(entries(keys(20)))
  try await engine.remove(keys: Array(keys(20).prefix(5)))
  try await engine.removeAllData()
  try expectUnchanged(files, "after removeAllData()")
  try await context.close(engine)
  let reopened = try await context.open(place)
  try await reopened.write(data("v"), key: key("k"))
  try await context.close(reopened)
  try expectUnchanged(files, "after reopening")
}

/// Whether the engine takes none of the files of others for an entry. If it takes one for an entry that it cannot decode,
/// even counting and listing may throw.
private func findsNothing(_ engine: EngineUnderTest) async -> Bool {
  do {
    guard try await engine.keyCount() == 0 else { return false }
    return try await engine.allKeys().isEmpty
  } catch {
    return false
  }
}

/// Changes other entries of an engine that takes files of others for entries. It need not work beside entries that it
/// cannot decode, but what it returns must be right.
private func useAmongLookalikes(_ engine: EngineUnderTest) async throws {
  let (removed, kept) = (Array(keys(20).prefix(5)), Array(keys(20).dropFirst(5)))
  do {
    try await engine.write(entries(keys(20)))
    try await engine.remove(keys: removed)
    try await expectStored(entries(kept), absent: removed, in: engine)
  } catch is CallFailure {
    // Rule F2 covers which error it throws.
  }
}

/// The extension of a file's name, if it has one.
private func endingOfName(_ path: String) -> String? {
  guard let name = path.split(separator: "/").last, let dot = name.lastIndex(of: "."), dot != name.startIndex
  else { return nil }
  let ending = name[name.index(after: dot)...]
  return ending.isEmpty || ending.utf8.count > 20 ? nil : String(ending)
}
