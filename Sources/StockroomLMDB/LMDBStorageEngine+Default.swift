import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension LMDBStorageEngine {
  /// The engine in this program's directory for data, opened when it is first asked for.
  ///
  /// It is in `<program>/Stockroom/LMDB` in the default storage directory, with the bundle identifier for the program, or
  /// the name of the executable where there is none. It is one engine for the whole program. Opening waits for the disk
  /// on the calling thread; if it throws, the next who asks tries again.
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
