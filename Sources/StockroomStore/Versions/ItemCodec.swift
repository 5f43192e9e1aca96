import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Converts values of one type to their stored bytes and back, with their versions.
struct ItemCodec<Value: Codable & Sendable>: Sendable {
  let base: any Codec
  /// The versions that can be read, the newest first. Contains only 1 if the type is not a ``VersionedItem``.
  private let versions: [Int]
  /// The type itself, or nil if it is not a ``VersionedItem``.
  private let chain: (any VersionedItem.Type)?
  private let areVersionsInOrder: Bool

  init(_ base: any Codec) {
    self.base = base
    // Determined once, since looking for a conformance takes longer than decoding a small value.
    chain = Value.self as? any VersionedItem.Type
    versions = chain?.versions ?? [1]
    areVersionsInOrder =
      zip(versions, versions.dropFirst()).allSatisfy { $0 > $1 } && versions.allSatisfy { $0 >= 1 }
  }

  /// The version in which values are stored.
  var version: Int { versions[0] }

  /// Whether the type is a ``VersionedItem``.
  var isVersioned: Bool { chain != nil }

  /// Whether stored bytes are of an older version, including one that cannot be read.
  func isOld(_ data: Data) -> Bool { StoredVersion(of: data).isOlder(than: version) }

  /// The bytes to store.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  func encode(_ value: Value, for key: CacheKey) throws(StorageError) -> Data {
    try checkVersions()
    return StoredVersion.bytes(try base.encode(value, for: key), version: version)
  }

  /// Like ``encode(_:for:)``, and throws if the value would be decoded as a different one.
  func encodeForRoundTrip(_ value: Value, for key: CacheKey) throws(StorageError) -> Data {
    try checkVersions()
    return StoredVersion.bytes(try base.encodeForRoundTrip(value, for: key), version: version)
  }

  /// The value of stored bytes, of any version that the type has or had.
  ///
  /// - Throws: `StorageError` with code `decodingFailed`, or with code `unsupported` for a newer version.
  func decode(_ data: Data, of key: CacheKey) throws(StorageError) -> Value {
    try checkVersions()
    let stored = StoredVersion(of: data)
    let encoded =
      stored.headerSize == 0 ? data : data.subdata(in: data.startIndex + stored.headerSize..<data.endIndex)
    guard let number = stored.number, number <= version else {
      throw StorageError(newer: stored, than: version, of: key, "is left as it is")
    }
    guard number < version, let chain else { return try base.decode(Value.self, from: encoded, of: key) }
    guard versions.contains(number) else {
      throw StorageError(
        .decodingFailed,
        "The value of \(key) has version \(number), which is none of those that \(Value.self) is made from: "
          + versions.map(String.init).joined(separator: ", "))
    }
    do {
      if let value = try chain.decode(encoded, version: number, by: base) as? Value { return value }
    } catch {
      throw StorageError(
        .decodingFailed,
        "The \(data.count) bytes of \(key), of version \(number), could not be made a \(Value.self) of version "
          + "\(version).", underlying: error)
    }
    throw StorageError(.unsupported, "The versions of \(Value.self) do not lead to it.")
  }

  /// The bytes of a stored value in the newest version. Returns nil, without decoding, if it already has the newest version.
  ///
  /// - Throws: as ``decode(_:of:)`` and ``encode(_:for:)``.
  func rewritten(_ data: Data, of key: CacheKey) throws(StorageError) -> Data? {
    if StoredVersion(of: data).number == version { return nil }
    return try encode(decode(data, of: key), for: key)
  }

  /// - Throws: `StorageError` with code `unsupported` if a version is not greater than the previous one.
  private func checkVersions() throws(StorageError) {
    guard areVersionsInOrder else {
      throw StorageError(
        .unsupported,
        "The versions of \(Value.self) and of what it was before are \(versions.map(String.init).joined(separator: ", ")): "
          + "each has to be greater than the next, and the last one at least 1.")
    }
  }
}
