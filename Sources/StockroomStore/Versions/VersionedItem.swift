#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A type of items or values that has replaced an older type, with the migration from that type.
///
/// ```swift
/// struct Note: VersionedItem, Identifiable {
///   var id: String
///   var paragraphs: [String]
///
///   init(migrating previous: FirstNote) {
///     id = previous.id
///     paragraphs = [previous.text]
///   }
/// }
/// ```
///
/// The older type stays in the program, under another name, and may itself have an older one. Together they form a chain,
/// which ends with a type that is not versioned, or has no ``Previous``. A stored value begins with its version, is decoded
/// as the type of that version, and is then migrated step by step to the newest type. A value without a version is of
/// version 1, the oldest.
///
/// An optional, an array, or a dictionary with `String` keys of a versioned type has the versions of that
/// type: `[Note]` is read from entries that were stored as `[FirstNote]`. Within any other type, a versioned
/// type has no version of its own.
///
/// A value of a newer version than this type is reported, with ``NewerVersionError``, and is not changed.
/// <doc:ChangingTypes> describes where it is reported, and how old versions are rewritten.
public protocol VersionedItem: Codable, Sendable {
  /// The type that this one has replaced; `Never` if there is none, or if no value of it is stored any more.
  associatedtype Previous: Codable & Sendable = Never

  /// The number of this version: 1 or more, and greater than the version of ``Previous``.
  ///
  /// The default is one more than the version of ``Previous``, where a type that is not versioned counts as 1; without a
  /// previous type it is 1. Only the last type of a chain whose oldest types have been removed needs to declare it. If the
  /// numbers of a chain are out of order, all encoding and decoding of the type throws `StorageError` with code
  /// `unsupported`.
  static var version: Int { get }

  /// The migration step: creates an item of this type from an item of the previous type.
  ///
  /// It may run more than once for the same item, on any thread, and must return equal items each time: do
  /// not use a new identifier or the current time. The identifier of an item must stay the same.
  ///
  /// - Throws: any error. The entry is then unreadable, and stays stored (rule S6): reading it throws a `StorageError` with code
  ///   `StorageError.Code.decodingFailed`, whose `underlying` error is this error.
  init(migrating previous: Previous) throws
}

extension VersionedItem {
  /// One more than the version of ``Previous``.
  public static var version: Int {
    if Previous.self is any EndOfVersions.Type { return 1 }
    return ((Previous.self as? any VersionedItem.Type)?.version ?? 1) + 1
  }
}

extension VersionedItem where Previous == Never {
  /// Never called: there is no previous type.
  public init(migrating previous: Never) throws { switch previous {} }
}

// MARK: - The chain

extension VersionedItem {
  /// The versions of the chain, the newest first. If the last type of the chain is not versioned, it has version 1.
  static var versions: [Int] {
    if Previous.self is any EndOfVersions.Type { return [version] }
    return [version] + ((Previous.self as? any VersionedItem.Type)?.versions ?? [1])
  }

  /// Decodes bytes of one version of the chain, and migrates the result to this type.
  ///
  /// - Parameter version: One of ``versions``.
  /// - Throws: what the codec and the steps throw.
  static func decode(_ data: Data, version: Int, by codec: any Codec) throws -> Self {
    if version == Self.version { return try codec.decode(Self.self, from: data) }
    guard let older = Previous.self as? any VersionedItem.Type,
      let previous = try older.decode(data, version: version, by: codec) as? Previous
    else {
      return try Self(migrating: codec.decode(Previous.self, from: data))
    }
    return try Self(migrating: previous)
  }
}
