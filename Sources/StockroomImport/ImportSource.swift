import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Data that another library has stored on disk, to be copied into an engine.
///
/// ```swift
/// let report = try await BodegaSQLiteSource(at: oldNotes).import(into: engine)
/// ```
///
/// An import only reads the source. It changes neither its bytes nor the times of its files, except the time of the
/// last access, and creates no file beside it. Close everything in this process that has the source open before the
/// import. See ``BodegaSQLiteSource``, ``BodegaDiskSource``, ``PersistentCacheSource`` and ``UserDefaultsSource``;
/// conform your own type to import anything else.
///
/// The description identifies the source in messages, with its path.
public protocol ImportSource: Sendable, CustomStringConvertible {
  /// Reads as much of the source as is needed to verify it: everything except the values.
  ///
  /// - Throws: `StorageError` with code `corrupted`, naming the path and the defect; `unsupported` if it is
  ///   something else; `locked` if another program is writing; `permissionDenied` or `io`.
  func open() async throws -> any ImportContent
}

/// The entries of an open ``ImportSource``, as they were when it was opened.
///
/// ``key(at:)`` and ``entry(at:)`` are called on a thread that may block.
public protocol ImportContent: Sendable {
  /// The number of entries.
  var count: Int { get }
  /// The data in the source that are not imported, with the reason, one sentence each.
  var omissions: [String] { get }

  /// Whether the source stores hashes of keys that were created by hashing, as Bodega's directories do, and not the
  /// hashed texts. Default: false.
  var hasHashedKeys: Bool { get }

  /// The key of an entry as stored in the source, which may be longer than a key of an engine.
  ///
  /// - Parameter index: From 0 to below ``count``, in the order of creation.
  /// - Throws: as ``entry(at:)``.
  func key(at index: Int) throws -> CacheKey

  /// An entry, with the source's key and times. Reads its value.
  ///
  /// - Parameter index: From 0 to below ``count``, in the order of creation.
  /// - Throws: `StorageError` with code `corrupted`, `locked` if it has changed since the source was opened, or `io`.
  func entry(at index: Int) throws -> StorageEntry
}

extension ImportContent {
  /// False.
  public var hasHashedKeys: Bool { false }
}

extension StorageError.Code {
  /// The target of an import already has entries, and merging was not requested. Nothing was written.
  public static let targetNotEmpty = StorageError.Code("targetNotEmpty")
}

/// The progress of an import.
public struct ImportProgress: Sendable, Hashable {
  /// The number of entries that have been written or skipped.
  public let completed: Int
  /// The number of entries in the source.
  public let total: Int
  /// The number of bytes of the values that have been written.
  public let bytes: Int
}

/// The result of an import.
public struct ImportReport: Sendable, Hashable {
  /// The number of entries that were imported. An engine has returned them without a difference when they were read
  /// back. A `PersistentCache` has stored them, but may have removed some of them since, if it has limits.
  public var imported = 0
  /// The number of bytes of their values.
  public var bytes = 0
  /// The number of entries that were skipped because the target already has an entry with their key, which
  /// does not change.
  public var alreadyPresent = 0
  /// The number of entries imported under a hash, because the hashed text could not be found in the value.
  public var unresolvedHashes = 0
  /// The data in the source that were not imported, with the reason, one sentence each.
  public var omissions: [String] = []

  /// Creates an empty report.
  public init() {}
}
