import Foundation
import StockroomCore
import TestFixtures
import StockroomKitSupport
import Testing

@testable import StockroomFileSystem

/// System calls that are refused in the middle of a batch.
@Suite("A batch with a refused step")
struct RefusalTests {
  static let long = CacheKey(verbatim: String(repeating: "long/", count: 80))

  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  private func expectNothingLeft() throws {
    for name in ["staging", "undo"] {
      #expect(
        try FileManager.default.contentsOfDirectory(atPath: place.file(".stockroom/\(name)").path) == [])
    }
  }

  @Test(
    "Whatever step of a batch fails, all of it is undone, at once and for engines that open later",
    arguments: 0..<5)
  func anyStep(_ failing: Int) async throws {
    let engine = try place.open()
    let old: [CacheKey] = ["x", Self.long, "removed", "removed too"]
    for key in old { try await engine.write(data("old"), key: key) }
    let created = try await engine.createdAt(key: Self.long)

    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    #expect(throws: StorageError.self) {
      try connection.withLock {
        let boundary = try connection.reserveSequenceNumbers(5, at: .now())
        let staged: [(CacheKey, isNew: Bool)] = [
          ("a", true), ("b", true), ("x", false), (Self.long, false), ("c", true),
        ]
        var steps: [Transaction.Step] = []
        for (number, (key, isNew)) in staged.enumerated() {
          try connection.stage(data("new"), at: boundary, number: number)
          steps.append(isNew ? .create(key, staged: number) : .replace(key, staged: number))
        }
        let transaction = Transaction(boundary: boundary, steps: steps + [.remove("removed"), .removeAll])
        connection.staging.remove(StagedName(boundary: boundary, number: failing))
        try connection.journal.begin(transaction)
        try connection.complete(transaction, isReplay: false)
      }
    }
    connection.release()
    for engine in [engine, try place.open()] {
      #expect(try await engine.readAllEntries().map(\.key) == old)
      #expect(try await Set(engine.readAllData()) == [data("old")])
      #expect(try await engine.createdAt(key: Self.long) == created)
      try expectNothingLeft()
      try await engine.write([("y", data("1")), ("z", data("1"))])
      try await engine.remove(keys: ["y", "z"])
    }
  }

  @Test(
    "A batch whose process died before it was undone is undone, however much had been undone",
    arguments: 0..<3)
  func undone(_ progress: Int) async throws {
    var engine: DiskStorageEngine? = try place.open()
    for key in ["x", "removed"] as [CacheKey] { try await engine?.write(data("old"), key: key) }
    engine = nil
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(2, at: .now())
      for number in 0..<2 {
        try connection.stage(data("new"), at: boundary, number: number)
      }
      let transaction = Transaction(
        boundary: boundary, steps: [.create("a", staged: 0), .replace("x", staged: 1), .remove("removed")])
      try connection.journal.begin(transaction)
      try connection.setUnstable(true)
      try connection.moveIn(StagedName(boundary: boundary, number: 0), to: FileName("a"))
      if progress > 0 { try connection.entries.move(FileName("x"), to: connection.undo) }
      if progress > 1 {
        try connection.moveIn(StagedName(boundary: boundary, number: 1), to: FileName("x"))
        try connection.entries.move(FileName("removed"), to: connection.undo)
      }
      try connection.journal.abort()
    }
    connection.release()
    let again = try place.open()
    #expect(try await again.readAllEntries().map(\.key) == ["x", "removed"])
    #expect(try await Set(again.readAllData()) == [data("old")])
    try expectNothingLeft()
  }

  /// The operations of a batch on a key so long that its file is in a separate directory.
  enum DeepStep: CaseIterable { case creation, replacement, removal }

  @Test(
    "A batch is undone, and other entries stay readable, if a directory of long keys can no longer be opened",
    arguments: DeepStep.allCases)
  func deepDirectory(_ deepStep: DeepStep) async throws {
    let engine = try place.open()
    let old: [CacheKey] = ["x", "removed", Self.long]
    for key in old { try await engine.write(data("old"), key: key) }
    let inner = place.file(try #require(try place.visibleFiles().first { $0.hasSuffix(".more") }))
    let elsewhere = place.beside("elsewhere")

    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(2, at: .now())
      for number in 0..<(deepStep == .removal ? 1 : 2) {
        try connection.stage(data("new"), at: boundary, number: number)
      }
      let step: Transaction.Step =
        switch deepStep {
        case .creation: .create(CacheKey(verbatim: Self.long.value + "2"), staged: 1)
        case .replacement: .replace(Self.long, staged: 1)
        case .removal: .remove(Self.long)
        }
      let transaction = Transaction(
        boundary: boundary, steps: [.replace("x", staged: 0), .remove("removed"), step])
      try connection.journal.begin(transaction)
      try FileManager.default.moveItem(at: inner, to: elsewhere)
      try Data().write(to: inner)
      #expect(throws: StorageError.self) { try connection.complete(transaction, isReplay: false) }
    }
    connection.release()
    for key in ["x", "removed"] as [CacheKey] { #expect(try await engine.read(key: key) == data("old")) }
    try expectNothingLeft()

    try FileManager.default.removeItem(at: inner)
    try FileManager.default.moveItem(at: elsewhere, to: inner)
    for engine in [engine, try place.open()] {
      #expect(try await engine.readAllEntries().map(\.key) == old)
      #expect(try await Set(engine.readAllData()) == [data("old")])
    }
    try await engine.remove(keys: old)
    #expect(try await engine.keyCount() == 0)
  }

  @Test(
    "A directory that cannot be opened for a sync is synced with its file system, and the engine continues",
    .enabled(if: SystemCalls.canSynchronizeFileSystem, "this system syncs no file system as a whole"))
  func unopenedDirectory() async throws {
    try await place.open().write(data("1"), key: Self.long)
    let inner = place.file(try #require(try place.visibleFiles().first { $0.hasSuffix(".more") }))
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try FileManager.default.moveItem(at: inner, to: place.beside("elsewhere"))
    try Data().write(to: inner)
    try connection.withLock {
      try connection.failingPermanently { try connection.synchronizeDirectories(of: [FileName(Self.long)]) }
    }
    let metadata = try connection.withLock { try connection.metadata(of: FileName("absent")) }
    #expect(metadata == nil)
    connection.release()
  }

  @Test(
    "After a failed sync of a change every call throws the cause, and nothing is retried"
  )
  func unsyncedChange() throws {
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    defer { connection.release() }
    let cause = StorageError(.diskFull, "No room for the test.")
    let error = #expect(throws: AfterCommitError.self) {
      try connection.withLock { try connection.failingPermanently { throw cause } }
    }
    let reported = error?.underlying as? StorageError
    #expect(reported?.code == .io)
    #expect((reported?.underlying as? StorageError)?.message == cause.message)
    let later = #expect(throws: StorageError.self) { try connection.withLock {} }
    #expect(later?.code == .io)
    #expect((later?.underlying as? StorageError)?.message == cause.message)
  }

  @Test(
    "A batch throws, and removes nothing, if the directory that keeps removed files is missing",
    arguments: [false, true])
  func undoGone(removesAll: Bool) async throws {
    let engine = try place.open()
    for key in ["x", "y"] as [CacheKey] { try await engine.write(data("old"), key: key) }
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let steps: [Transaction.Step] = removesAll ? [.removeAll] : [.remove("x"), .remove("y")]
      let transaction = Transaction(
        boundary: try connection.reserveSequenceNumbers(0, at: .now()), steps: steps)
      try connection.journal.begin(transaction)
      try FileManager.default.removeItem(at: place.file(".stockroom/undo"))
      #expect(throws: StorageError.self) { try connection.complete(transaction, isReplay: false) }
    }
    connection.release()
    #expect(try await engine.readAllEntries().map(\.key) == ["x", "y"])
    let again = try place.open()
    try await again.remove(keys: ["x", "y"])
    #expect(try await again.keyCount() == 0)
  }

  @Test("A batch is undone although another program has removed one of its files meanwhile")
  func removedMeanwhile() async throws {
    let engine = try place.open()
    for key in ["x", "y", "z"] as [CacheKey] { try await engine.write(data("old"), key: key) }
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(1, at: .now())
      try connection.stage(data("new"), at: boundary, number: 0)
      // The replacement of `z` fails, since nothing is staged for it.
      let transaction = Transaction(
        boundary: boundary, steps: [.replace("x", staged: 0), .replace("z", staged: 1), .remove("y")])
      try connection.journal.begin(transaction)
      try FileManager.default.removeItem(at: place.file("x.entry"))
      #expect(throws: StorageError.self) { try connection.complete(transaction, isReplay: false) }
    }
    connection.release()
    for engine in [engine, try place.open()] {
      #expect(try await engine.readAllEntries().map(\.key) == ["y", "z"])
      #expect(try await Set(engine.readAllData()) == [data("old")])
      try expectNothingLeft()
      try await engine.write([("x", data("1")), ("w", data("1"))])
      try await engine.remove(keys: ["x", "w"])
    }
  }

  #if os(Linux)
    @Test(
      "An immutable file fails only the calls that would change it",
      .enabled(if: ImmutableFile.isPossible, "this user or this file system has no immutable files"),
      arguments: Durability.allCases)
    func immutable(_ durability: Durability) async throws {
      let engine = try place.open(durability)
      for key in ["a", "b", Self.long] { try await engine.write(data("1"), key: key) }
      let file = try ImmutableFile(place.file("a.entry"))
      await expectError(.permissionDenied, naming: "a.entry") { try await engine.write(data("2"), key: "a") }
      await expectError(.permissionDenied, naming: "a.entry") { try await engine.remove(key: "a") }
      await expectError(.permissionDenied, naming: "a.entry") {
        try await engine.write([("c", data("2")), (Self.long, data("2")), ("b", data("2")), ("a", data("2"))])
      }
      await expectError(.permissionDenied, naming: "a.entry") { try await engine.remove(keys: ["b", "a"]) }
      await expectError(.permissionDenied, naming: "a.entry") { try await engine.removeAllData() }
      await expectError(.permissionDenied, naming: "a.entry") {
        try await engine.apply([.removeAll, .write(data("2"), key: "d")])
      }
      for engine in [engine, try place.open(durability)] {
        #expect(try await engine.readAllEntries().map(\.key) == ["a", "b", Self.long])
        #expect(try await Set(engine.readAllData()) == [data("1")])
        try await engine.write([("e", data("1")), ("f", data("1"))])
        try await engine.write(data("1"), key: "e")
        try await engine.remove(keys: ["e", "f"])
      }
      try expectNothingLeft()
      try file.makeMutable()
      try await engine.write([("a", data("3")), ("b", data("3"))])
      try await engine.removeAllData()
      #expect(try await engine.keyCount() == 0)
    }

    @Test(
      "A batch that could not be completed because a file has become immutable is undone",
      .enabled(if: ImmutableFile.isPossible, "this user or this file system has no immutable files"),
      arguments: [false, true])
    func recovery(removesAll: Bool) async throws {
      var engine: DiskStorageEngine? = try place.open()
      for key in ["a", "b"] as [CacheKey] { try await engine?.write(data("1"), key: key) }
      engine = nil
      let connection = try DiskConnection(directory: place.url.path, durability: .full)
      try connection.withLock {
        let boundary = try connection.reserveSequenceNumbers(0, at: .now())
        let steps: [Transaction.Step] = removesAll ? [.removeAll] : [.remove("b"), .remove("a")]
        try connection.journal.begin(Transaction(boundary: boundary, steps: steps))
        try connection.entries.move(FileName("b"), to: connection.undo)
      }
      connection.release()
      let file = try ImmutableFile(place.file("a.entry"))
      let again = try place.open()
      #expect(try await again.readAllEntries().map(\.key) == ["a", "b"])
      try await again.write([("b", data("2")), ("c", data("2"))])
      try file.makeMutable()
      try await again.remove(keys: ["a", "b", "c"])
    }
  #endif

  @Test(
    "A directory that can no longer be changed makes batches fail as a whole",
    .enabled(if: geteuid() != 0, "root may change everything"))
  func permissionTakenAway() async throws {
    let engine = try place.open()
    try await engine.write([("a", data("1")), (Self.long, data("1"))])
    let inner = try #require(try place.visibleFiles().first { $0.hasSuffix(".more") })
    let path = place.file(inner).path
    try #require(chmod(path, 0o500) == 0)
    await expectError(.permissionDenied) {
      try await engine.write([("a", data("2")), (Self.long, data("2"))])
    }
    await expectError(.permissionDenied) { try await engine.removeAllData() }
    #expect(try await Set(engine.readAllData()) == [data("1")])
    try #require(chmod(path, 0o700) == 0)
    try await engine.removeAllData()
  }
}

#if os(Linux)
  /// A file that is immutable until it is made mutable again.
  final class ImmutableFile: Sendable {
    private let path: String

    init(_ url: URL) throws {
      path = url.path
      try Self.run("+i", path)
    }

    deinit { try? makeMutable() }

    func makeMutable() throws { try Self.run("-i", path) }

    private static func run(_ mode: String, _ path: String) throws {
      let output = try ProgramOutput(waitingFor: ["/usr/bin/env", "chattr", mode, path])
      guard output.isSuccess else { throw StorageError(.io, "chattr \(mode) \(path) \(output.explanation)") }
    }

    static let isPossible: Bool = {
      guard let place = try? TemporaryDirectory(), (try? Data().write(to: place.file("f"))) != nil,
        let file = try? ImmutableFile(place.file("f"))
      else { return false }
      return (try? file.makeMutable()) != nil
    }()
  }
#endif
