import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import StockroomMemory

// Engines that do not open, close or fail as they should, or whose errors are too vague.

extension FaultyEngineCase {
  static let ofFiles: [FaultyEngineCase] = [
    .init(persistent: .o1, "needs its directory", fault: .needsDirectory, also: [.o5]),
    .init(persistent: .o2, "removes what is in the way", fault: .clearsTheWay),
    .init(persistent: .c6, "does not notice what becomes of its place", fault: .ignoresItsPlace),
    .init(persistent: .c6, "notices no more than that its file is deleted", fault: .noticesDeletionOnly),
    .init(persistent: .c6, "notices no more than that there is no file", fault: .noticesAbsenceOnly),
    .init(
      persistent: .c6, "notices no more than what becomes of its directory", fault: .noticesDirectoryOnly),
    .init(
      persistent: .c6, "looks at its place before a body, and not after it", fault: .looksBeforeBodiesOnly,
      claiming: ReferenceEngine.promises.union(.transactions)),
    .init(
      persistent: .c6, "saves a transaction over what is in its place by then",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { SavesOverAnotherPlace(base: $0, directory: $1) },
    .init(persistent: .c6, "answers keyExists(_:) though its place is gone") { base, _ in
      SupposesWhatItCannotSee(base: base)
    },
    .init(persistent: .c6, "empties what is in its place now") {
      EmptiesByPath(base: $0, path: $1.appending(path: "reference.log").path(percentEncoded: false))
    },
    .init(persistent: .o3, "does nothing when it is closed", fault: .closesNothing),
    .init(persistent: .o3, "keeps its file open until it is dropped", fault: .keepsFileOpenUntilDropped),
    .init(persistent: .o3, "keeps its lock until it is dropped", fault: .keepsLockUntilDropped),
    .init(persistent: .o5, "lets everybody read its files", fault: .makesPublicFiles),
    .init(persistent: .o5, "lets everybody enter its directories", fault: .makesPublicDirectories),
    .init(persistent: .o5, "writes to what a link leads to", fault: .followsForeignLinks),
    .init(persistent: .o5, "makes a file where a link leads to", fault: .followsLinksToNowhere),
    .init(persistent: .o5, "follows links to files of its own", fault: .followsLinksToItsFiles),
    .init(persistent: .o5, "waits at a FIFO", fault: .waitsForFIFOs, stallTimeout: .seconds(6)),
    .init(persistent: .o5, "removes a directory in the way", fault: .clearsDirectoriesAway),
    .init(persistent: .f4, "remembers writes that were refused", fault: .remembersRefusedWrites),
    .init(persistent: .f4, "repeats writes that were refused", fault: .repeatsRefusedWrites),
    .init(
      persistent: .f2, "takes a torn tail for the end", fault: .takesTornTails,
      claiming: ReferenceEngine.promises.subtracting(.detectsCorruption).union(.durableWrites)),
    .init(
      persistent: .f2, "takes what its last page lacks for zeros", fault: .fillsTornTails,
      claiming: ReferenceEngine.promises.subtracting(.detectsCorruption)),
    .init(
      persistent: .f2, "starts empty without a small file",
      claiming: ReferenceEngine.promises.subtracting(.detectsCorruption)
    ) { StartsEmptyWithoutItsMarker(base: $0, directory: $1) },
    .init(.f2, "writes again what it verifies, in memory", also: [.c1, .w2]) {
      TouchesWhatItVerifies(base: $0)
    },
    .init(
      .f2, "calls what is ahead of the clock corrupted",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { _ in RefusesTheFuture(base: MemoryStorageEngine()) },
    .init(persistent: .f2, "verifies nothing") { base, _ in VerifiesNothing(base: base) },
    .init(persistent: .f2, "verifies the first page") { VerifiesTheFirstPage(base: $0, directory: $1) },
    .init(persistent: .o3, "refuses only writes when closed", fault: .refusesOnlyWrites),
    .init(persistent: .o3, "acknowledges what comes too late", fault: .acknowledgesWhenClosed),
    .init(persistent: .o3, "can be closed once", fault: .closesOnce),
    .init(persistent: .o4, "keeps its file open", fault: .keepsFileOpen, also: [.o3]),
    .init(persistent: .o4, "keeps its lock unless it is closed", fault: .keepsLock, also: [.w6, .v3]),
    .init(persistent: .o4, "keeps its file open when it is corrupted", fault: .leaksWhenCorrupted),
    .init(persistent: .o4, "opens its file for each read") {
      OpensItsFileForEachRead(base: $0, directory: $1)
    },
    .init(persistent: .f1, "calls a full disk an input/output error", fault: .reportsFullDiskAsIO),
    .init(persistent: .f1, "remembers writes that failed", fault: .remembersFailedWrites, also: [.f4]),
    .init(persistent: .f2, "starts empty when corrupted", fault: .startsAnewWhenCorrupted, also: [.o2]),
    .init(persistent: .f2, "starts empty once it has thrown", fault: .startsAnewOnceItHasThrown),
    .init(persistent: .f2, "does not look at checksums", fault: .ignoresChecksums),
    .init(persistent: .f3, "calls read-only media an input/output error", fault: .reportsReadOnlyAsIO),
  ]

  static let ofClaims: [FaultyEngineCase] =
    [
      (.persistent, .w6), (.durableWrites, .w6), (.atomicBatches, .w4), (.snapshotReads, .r3),
      (.orderedScans, .r5),
      (.detectsCorruption, .f2), (.transactions, .t1), (.changeFeed, .x1), (.networked, .n1),
      (.preservesTimestamps, .w2),
    ].map { (capability: EngineCapabilities, rule: ContractRule) in
      .init(
        persistent: rule, "does not report \(capability)",
        claiming: ReferenceEngine.promises.union(capability)
      ) { base, _ in KeepsQuiet(base: base, silence: capability) }
    } + [
      .init(
        .r3, "reports snapshotReads, which the suite was not given",
        claiming: [.atomicBatches, .orderedScans]
      ) { ReportsMore(base: $0, surplus: .snapshotReads) }
    ]
}

struct VerifiesNothing: FaultyEngine {
  let base: ReferenceEngine
  func verify() async throws {}
}

/// Has a file for each 500 entries of a batch, and scans all of them when it reads.
struct VerifiesTheFirstPage: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  private static let content = Data("page".utf8)

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    for page in 0...dataAndKeys.count / 500 {
      try Self.content.write(to: directory.appending(path: "page-\(page)"))
    }
  }

  func read(key: CacheKey) async throws -> Data? {
    var page = 0
    while try look(at: page) { page += 1 }
    return try await base.read(key: key)
  }

  func verify() async throws { _ = try look(at: 0) }

  /// - Returns: Whether the page exists.
  private func look(at page: Int) throws -> Bool {
    let file = directory.appending(path: "page-\(page)")
    guard FileManager.default.fileExists(atPath: file.path) else { return false }
    if try Data(contentsOf: file) != Self.content {
      throw StorageError(.corrupted, "Page \(page) is corrupted.")
    }
    return true
  }
}

/// Treats an error as if the entry existed.
struct SupposesWhatItCannotSee: FaultyEngine {
  let base: ReferenceEngine
  func keyExists(_ key: CacheKey) async throws -> Bool {
    do {
      return try await base.keyExists(key)
    } catch let error as StorageError where error.code == .io {
      return true
    }
  }
}

/// Empties the file at its path, even if it belongs to others.
struct EmptiesByPath: FaultyEngine {
  let base: ReferenceEngine
  let path: String
  func removeAllData() async throws {
    do {
      try await base.removeAllData()
    } catch let error as StorageError where error.code == .io {
      truncate(path, 0)
      throw error
    }
  }
}

/// Has the contents at the end of a body in memory, and writes them over whatever is in its place by then.
struct SavesOverAnotherPlace: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let last = MutexProtected<(result: Result, entries: [(key: CacheKey, data: Data)])?>(nil)
    do {
      return try await base.withTransaction { transaction in
        let result = try body(transaction)
        let entries = try transaction.scan(.all, limit: nil)
        last.withLock { $0 = (result, entries) }
        return result
      }
    } catch let error as StorageError where error.code == .io {
      guard let (result, entries) = last.withLock({ $0 }) else { throw error }
      let there = try ReferenceEngine(directory: directory)
      try await there.apply([.removeAll] + entries.map { .write($0.data, key: $0.key) })
      try await there.close()
      return result
    }
  }
}

/// Treats a place without its marker file as a new one, and removes the contents.
struct StartsEmptyWithoutItsMarker: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine, directory: URL) {
    self.base = base
    let marker = directory.appending(path: "marker").path(percentEncoded: false)
    if FileManager.default.fileExists(atPath: marker) { return }
    // A corrupted log is reported by the first call.
    try? base.commit([.removeAll])
    _ = FileManager.default.createFile(
      atPath: marker, contents: nil, attributes: [.posixPermissions: 0o600])
  }
}

/// Closes its files when it is closed or released, and no earlier.
final class OpensItsFileForEachRead: FaultyEngine {
  let base: ReferenceEngine
  private let path: String
  private let files = MutexProtected<[Int32]>([])
  init(base: ReferenceEngine, directory: URL) {
    self.base = base
    path = directory.appending(path: "reference.log").path(percentEncoded: false)
  }
  deinit { closeFiles() }
  private func closeFiles() {
    files.withLock { files in
      for file in files { _ = Foundation.close(file) }
      files = []
    }
  }
  func read(key: CacheKey) async throws -> Data? {
    // Enough to be detected, and few enough that the other tests of the process do not run out of descriptors.
    files.withLock { files in
      guard files.count < 300 else { return }
      let file = open(path, O_RDONLY | O_CLOEXEC)
      if file >= 0 { files.append(file) }
    }
    return try await base.read(key: key)
  }
  func close() async throws {
    try await base.close()
    closeFiles()
  }
}
