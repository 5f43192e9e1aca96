import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The kinds of sources that this module reads. The raw values are names for a command line.
public enum ImportSourceKind: String, Sendable, CaseIterable {
  /// ``BodegaSQLiteSource``
  case bodegaSQLite = "bodega-sqlite"
  /// ``BodegaDiskSource``
  case bodegaDisk = "bodega-disk"
  /// ``PersistentCacheSource``
  case persistentCache = "persistent-cache"
  /// ``UserDefaultsSource``
  case userDefaults = "user-defaults"

  /// The source of this kind at a URL. Reads nothing yet.
  public func source(at url: URL) -> any ImportSource {
    switch self {
    case .bodegaSQLite: BodegaSQLiteSource(at: url)
    case .bodegaDisk: BodegaDiskSource(at: url)
    case .persistentCache: PersistentCacheSource(at: url)
    case .userDefaults: UserDefaultsSource(at: url)
    }
  }

  /// Determines the kind of source at a URL: a database by its tables; a property list by its first bytes; a
  /// directory if it contains one database, or only files whose names are hashes.
  ///
  /// A directory of files with other names could be anything, so ``bodegaDisk`` must then be chosen
  /// explicitly. O(size of a database).
  ///
  /// - Throws: `StorageError` with code `unsupported` if it is none of these; as ``ImportSource/open()``.
  @concurrent
  public static func detect(at url: URL) async throws -> ImportSourceKind {
    try await source(at: url).kind
  }

  /// Like ``detect(at:)``. If a database had to be copied to determine the kind, the source uses that copy.
  @concurrent
  package static func source(at url: URL) async throws -> DetectedSource {
    try await DedicatedThread.runOnNewThread { flag in
      let path = url.path(percentEncoded: false)
      if try !DatabasePath.isDirectory(path) { return try detect(file: path, url, flag) }
      let names = try names(in: path, flag)
      if names.contains(where: isDatabase) {
        return try detect(file: DatabasePath.find(at: url, isDatabase: isDatabase), url, flag)
      }
      guard !names.isEmpty, names.allSatisfy({ CacheKey(verbatim: $0).looksLikeHash }) else {
        throw StorageError(
          .unsupported,
          names.isEmpty
            ? "The directory \(path) is empty, so there is nothing to import."
            : "The directory \(path) has files whose names are not hashes. If each is an entry of Bodega, specify bodega-disk."
        )
      }
      return DetectedSource(.bodegaDisk, at: url)
    }
  }

  private static func isDatabase(_ name: String) -> Bool {
    name.hasSuffix(".sqlite3") || name.hasSuffix(".sqlite")
  }

  /// The names in a directory, except those of directories and of files that the system creates.
  private static func names(in path: String, _ flag: CancellationFlag) throws -> [String] {
    let directory = try FileDescriptor.openDirectory(atPath: path)
    var names: [String] = []
    try directory.forEachName { name, _ in
      try flag.check()
      let text = String(cString: name)
      if try directory.status(of: name)?.isDirectory == false, !BodegaDiskSource.isMadeBySystem(text) {
        names.append(text)
      }
    }
    return names
  }

  private static func detect(
    file path: String, _ url: URL, _ flag: CancellationFlag
  ) throws -> DetectedSource {
    guard let (file, _) = try FileDescriptor.openRegularFile(following: path) else {
      throw StorageError(.unsupported, "\(path) is neither a file nor a directory.")
    }
    let start = String(decoding: try file.readBytes(16), as: UTF8.self)
    if ["bplist", "<?xml", "<!DOCTYPE plist", "<plist"].contains(where: start.hasPrefix) {
      return DetectedSource(.userDefaults, at: url)
    }
    guard start.hasPrefix("SQLite format 3") else {
      throw StorageError(.unsupported, "\(path) is neither an SQLite database nor a property list.")
    }
    let database = try SourceDatabase(path: path, flag)
    if try !BodegaSQLiteSource.tables(in: database).isEmpty {
      return DetectedSource(.bodegaSQLite, BodegaSQLiteSource(at: url, detected: database))
    }
    if try PersistentCacheSource.isPresent(in: database) {
      return DetectedSource(.persistentCache, PersistentCacheSource(at: url, detected: database))
    }
    throw StorageError(
      .unsupported,
      "\(path) is not a database of Bodega, Boutique or PersistentCacheKit. To copy a Stockroom database, use "
        + "`stockroom copy`.")
  }
}

/// A source and its kind.
package struct DetectedSource: Sendable {
  package let kind: ImportSourceKind
  package let source: any ImportSource

  package init(_ kind: ImportSourceKind, at url: URL) { self.init(kind, kind.source(at: url)) }

  /// A source for one of several tables of a database.
  package init(bodegaTable table: String, at url: URL) {
    self.init(.bodegaSQLite, BodegaSQLiteSource(at: url, table: table))
  }

  fileprivate init(_ kind: ImportSourceKind, _ source: any ImportSource) {
    self.kind = kind
    self.source = source
  }
}
