import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Something that another library has left on disk, to be copied into an engine.
///
/// ```swift
/// let report = try await BodegaSQLiteSource(at: oldNotes).import(into: engine)
/// ```
///
/// A source is only ever read: no byte of it changes, no time of a file but that of the last access, and no file is created beside it. Close what has it open in
/// this process first. See ``BodegaSQLiteSource``, ``BodegaDiskSource``, ``PersistentCacheSource`` and ``UserDefaultsSource``;
/// conform a type of your own to import anything else.
///
/// The description says in messages which source it is, with its path.
public protocol ImportSource: Sendable, CustomStringConvertible {
  /// Reads as much of the source as shows that it is sound: everything but the values.
  ///
  /// - Throws: `StorageError` with code `corrupted` that names the path and what is corrupted, `unsupported` if something else is there,
  ///   `locked` if another program is writing, `permissionDenied` or `io`.
  func open() async throws -> any ImportContent
}

/// The entries of an open ``ImportSource``, as they were when it was opened.
///
/// Keys and entries are read on a thread that may wait for a disk.
public protocol ImportContent: Sendable {
  /// The number of entries.
  var count: Int { get }
  /// What is there and is not imported, with the reason, one sentence each.
  var omissions: [String] { get }

  /// Whether the source stores a hash where a key was made by hashing, as Bodega's directories do, and not what was hashed. Default: no.
  var hasHashedKeys: Bool { get }

  /// The key of an entry as the source has stored it, which may be longer than a key of an engine.
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
  /// No.
  public var hasHashedKeys: Bool { false }
}

extension StorageError.Code {
  /// The target of an import has entries already, and merging was not asked for. Nothing was written.
  public static let targetNotEmpty = StorageError.Code("targetNotEmpty")
}

/// How far an import is.
public struct ImportProgress: Sendable, Hashable {
  /// The entries that have been written or left out.
  public let completed: Int
  /// The entries in the source.
  public let total: Int
  /// The bytes of the values that have been written.
  public let bytes: Int
}

/// What an import has done.
public struct ImportReport: Sendable, Hashable {
  /// The entries that have been written, and read back equal.
  public var imported = 0
  /// The bytes of their values.
  public var bytes = 0
  /// The entries left out because the target has an entry with their key, which stays as it is.
  public var alreadyPresent = 0
  /// The entries imported under a hash, because what the source had hashed could not be found in the value.
  public var unresolvedHashes = 0
  /// What is in the source and is not an entry, one sentence each.
  public var omissions: [String] = []

  /// A report of nothing.
  public init() {}
}
