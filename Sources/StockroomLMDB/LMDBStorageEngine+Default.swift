import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension LMDBStorageEngine {
  /// The engine in this program's data directory, opened on first use.
  ///
  /// It is in `<program>/Stockroom/LMDB` in the default storage directory, where `<program>` is the bundle
  /// identifier, or the name of the executable if there is none. The program has one such engine. Opening
  /// blocks the calling thread while it waits for the disk; if it throws, the next use retries.
  ///
  /// - Throws: as the initializer does.
  public static var `default`: LMDBStorageEngine {
    get throws {
      try shared.withLock { engine in
        if let engine { return engine }
        let opened = try LMDBStorageEngine.default(appendingPath: "LMDB")
        engine = opened
        return opened
      }
    }
  }

  /// An engine in a directory below `<program>/Stockroom` in the default storage directory.
  ///
  /// - Throws: as the initializer does.
  public static func `default`(appendingPath path: String) throws -> LMDBStorageEngine {
    try LMDBStorageEngine(directory: .defaultStorageDirectory.ofProgram.appending(path))
  }

  private static let shared = MutexProtected<LMDBStorageEngine?>(nil)
}
