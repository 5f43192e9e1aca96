#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A type of items or values that has replaced an older one, with the step from that to this.
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
/// The older type is kept in the program, under another name, and may have an older one itself: together they are a chain,
/// which ends with a type that is not versioned, or has no ``Previous``. What is stored begins with its version, and is decoded as
/// the type of that version and taken through the steps from there. What has none is of version 1, the oldest.
///
/// An optional, an array, and a dictionary with `String` keys of a versioned type have its versions: `[Note]` is read from
/// what was stored as `[FirstNote]`. A versioned type within any other type is part of that, and has no version of its own.
///
/// Whatever has a newer version than this type is reported, with ``NewerVersionError``, and left as it is. <doc:ChangingTypes> says
/// where, and how old versions are rewritten.
public protocol VersionedItem: Codable, Sendable {
  /// The type that this one has replaced; `Never` if there is none, or none that is still stored anywhere.
  associatedtype Previous: Codable & Sendable = Never

  /// The number of this version: 1 or more, and greater than that of ``Previous``.
  ///
  /// Default: one more than that of ``Previous``, where a type that is not versioned counts as 1; 1 if there is none. Only a
  /// chain whose oldest types have been left out needs to say it. While the number is out of order, everything that encodes or
  /// decodes the type throws `StorageError` with code `unsupported`.
  static var version: Int { get }

  /// The step: makes an item of this type from one of the previous type.
  ///
  /// It may run more than once for the same item, on any thread, and has to give equal items then: a new identifier or the
  /// present time do not belong here. The identifier of an item must stay the same.
  ///
  /// - Throws: any error. The entry is then unreadable, and stays stored (rule S6): `StorageError` with code
  ///   `StorageError.Code.decodingFailed` and this error as its `underlying` one.
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
  /// Is never called: there is no previous type.
  public init(migrating previous: Never) throws { switch previous {} }
}

// MARK: - The chain

extension VersionedItem {
  /// The versions of the chain, the newest first. A type at its end that is not versioned has version 1.
  static var versions: [Int] {
    if Previous.self is any EndOfVersions.Type { return [version] }
    return [version] + ((Previous.self as? any VersionedItem.Type)?.versions ?? [1])
  }

  /// Decodes what a type of the chain has encoded, and takes it through the steps.
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
