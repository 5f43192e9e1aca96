import StockroomCore
import StockroomStore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How the keys of a source are converted to keys of an engine.
///
/// A `Store` stores an item under its identifier, or under a hash of the identifier if that is empty or too long for a
/// key. Boutique passes the identifier to Bodega as `CacheKey(identifier)`. Bodega's SQLite engine stores the
/// identifier, and its disk engine stores the hash of the identifier. Therefore, the identifiers must be recovered from
/// the hashes for a `Store`. An `ObjectStorage`, which is used with `CacheKey("text")` in both libraries, expects the
/// hashes.
public struct ImportKeys: Sendable {
  private enum Rule: Sendable {
    case asStored
    case identifiers
    case hashed
    case identifier(@Sendable (Data) throws -> String)
  }

  private let rule: Rule

  /// For a `Store`, and for sources that do not store hashes: the text that the key was created from, or its hash if no
  /// key of an engine can hold the text.
  ///
  /// If the source stores hashes, the value is searched for the text: a string or an integer in its JSON, in up to 64
  /// nested objects and arrays, that has this hash. So a wrong text is never used. An identifier that is computed, and
  /// not contained in the JSON, is not found. Then the entry is imported under its hash, and counted in
  /// ``ImportReport/unresolvedHashes``. For such values, use ``identifiers(of:_:codec:)``.
  public static let identifiers = ImportKeys(rule: .identifiers)

  /// For an `ObjectStorage` with keys created by `CacheKey("text")`: the hash, which is computed if the
  /// source has stored the text.
  public static let hashed = ImportKeys(rule: .hashed)

  /// For keys created by `CacheKey(verbatim:)`: the same bytes. A key that no engine can hold throws
  /// `invalidKey`, before anything is written.
  public static let asStored = ImportKeys(rule: .asStored)

  /// For a `Store`, with the identifier of each value.
  ///
  /// - Parameter identifier: Returns the identifier of the item in these bytes. The key in the source must be this
  ///   identifier or its hash. If it is neither, or if the function throws, the import throws `decodingFailed`.
  public static func identifiers(
    from identifier: @escaping @Sendable (_ data: Data) throws -> String
  ) -> ImportKeys { ImportKeys(rule: .identifier(identifier)) }

  /// For a `Store<Item>`: `.identifiers(of: Note.self, \.id)`. Decodes every value.
  public static func identifiers<Item: StorableItem>(
    of type: Item.Type, _ cacheIdentifier: any KeyPath<Item, String> & Sendable, codec: some Codec = .json
  ) -> ImportKeys {
    .identifiers { data in try codec.decode(Item.self, from: data)[keyPath: cacheIdentifier] }
  }

  /// Whether the value of an entry must be read.
  func needsEntry(of stored: CacheKey, isHashed: Bool) -> Bool {
    switch rule {
    case .asStored, .hashed: false
    case .identifiers: isHashed && stored.looksLikeHash
    case .identifier: true
    }
  }

  /// The key of an entry in an engine, and whether it is a hash of an unknown text.
  ///
  /// - Parameters:
  ///   - stored: The key in the source.
  ///   - isHashed: Whether the source stores hashes of keys that were created by hashing.
  ///   - entry: Returns the entry, if it is needed: see ``needsEntry(of:isHashed:)``.
  /// - Throws: `StorageError` with code `invalidKey` if no engine can hold the key, `decodingFailed`; what `entry` throws.
  func key(
    of stored: CacheKey, isHashed: Bool, _ entry: () throws -> StorageEntry
  ) throws -> (key: CacheKey, isUnresolved: Bool) {
    switch rule {
    case .asStored:
      try stored.validate()
      return (stored, false)
    case .hashed: return (isHashed ? stored : CacheKey(stored.value), false)
    case .identifiers:
      guard needsEntry(of: stored, isHashed: isHashed) else {
        return (Self.key(forIdentifier: stored.value), false)
      }
      switch HashedText.find(in: try entry().data, key: stored) {
      case .found(let text): return (Self.key(forIdentifier: text), false)
      case .keyItself: return (stored, false)
      case .notFound: return (stored, true)
      }
    case .identifier(let identifier):
      return (Self.key(forIdentifier: try Self.checked(identifier, try entry())), false)
    }
  }

  private static func checked(
    _ identifier: @Sendable (Data) throws -> String, _ entry: StorageEntry
  ) throws -> String {
    let text: String
    do {
      text = try identifier(entry.data)
    } catch {
      throw StorageError(
        .decodingFailed, "The identifier of the entry \(entry.key) could not be found.", underlying: error)
    }
    guard CacheKey(verbatim: text) == entry.key || CacheKey(text) == entry.key else {
      throw StorageError(
        .decodingFailed,
        "The entry \(entry.key) has a value with the identifier \(text.prefix(40).debugDescription), which has another key."
      )
    }
    return text
  }

  /// The key under which a `Store` keeps the item (rule S8).
  private static func key(forIdentifier identifier: String) -> CacheKey {
    1...CacheKey.maximumLength ~= identifier.utf8.count
      ? CacheKey(verbatim: identifier) : CacheKey(identifier)
  }
}

extension CacheKey {
  /// Whether the key has the form of a hash, which is that of an uppercase UUID.
  var looksLikeHash: Bool {
    value.utf8.count == 36
      && value.utf8.enumerated().allSatisfy { index, byte in
        switch (index, byte) {
        case (8, _), (13, _), (18, _), (23, _): byte == UInt8(ascii: "-")
        case (_, UInt8(ascii: "0")...UInt8(ascii: "9")), (_, UInt8(ascii: "A")...UInt8(ascii: "F")): true
        default: false
        }
      }
  }
}

/// The result of searching a value for the text whose hash is its key.
private enum HashedText {
  case found(String)
  /// The key is not a hash, but a text that the value contains.
  case keyItself
  case notFound

  /// The key under which Boutique stores a single value, which does not contain this text.
  private static let nameOfSingleValue = "unique-value"

  static func find(in data: Data, key: CacheKey) -> HashedText {
    if CacheKey(nameOfSingleValue) == key { return .found(nameOfSingleValue) }
    // A value that is not JSON contains no identifier.
    guard let texts = try? JSONDecoder().decode(JSONScalars.self, from: data).texts else { return .notFound }
    // The text is searched for first, since an item may also contain its own hash, as the name of a file that belongs
    // to it.
    if let text = texts.first(where: { CacheKey($0) == key }) { return .found(text) }
    return texts.contains { CacheKey(verbatim: $0) == key } ? .keyItself : .notFound
  }
}

/// Every text and integer in a JSON value, except those that are nested too deep.
private struct JSONScalars: Decodable {
  /// The maximum number of nested objects and arrays that are searched. The decoder accepts more, but uses
  /// several nested calls for each, for which the stack of a task's thread is too small on some systems.
  private static let maximumNesting = 64

  private struct AnyKey: CodingKey {
    let stringValue: String
    let intValue: Int? = nil

    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
  }

  var texts: [String] = []

  init(from decoder: any Decoder) throws {
    if let object = try? decoder.container(keyedBy: AnyKey.self) {
      if decoder.codingPath.count >= Self.maximumNesting { return }
      for key in object.allKeys { texts += try object.decode(JSONScalars.self, forKey: key).texts }
    } else if var array = try? decoder.unkeyedContainer() {
      if decoder.codingPath.count >= Self.maximumNesting { return }
      while !array.isAtEnd { texts += try array.decode(JSONScalars.self).texts }
    } else {
      let value = try decoder.singleValueContainer()
      if let text = try? value.decode(String.self) {
        texts = [text]
      } else if let number = try? value.decode(Int64.self) {
        texts = [String(number)]
      }
    }
  }
}
