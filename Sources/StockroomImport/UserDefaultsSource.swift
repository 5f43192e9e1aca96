import Foundation
import StockroomCore
import StockroomStore

/// Values that Boutique's `StoredValue` has stored in user defaults.
///
/// ```swift
/// let source = UserDefaultsSource(at: URL(filePath: "com.example.app.plist"))
/// try await source.import(into: engine)
/// let theme = try source.value(Theme.self, forKey: "theme")
/// ```
///
/// A value becomes an entry under its key, as plain JSON, which `AsyncStoredValue` reads. To continue using
/// user defaults on Apple's systems, nothing has to be imported: see ``BoutiqueValueCodec``.
///
/// The file of an app is `Library/Preferences/<bundle identifier>.plist` in its container, and the file of a suite is
/// `<suite>.plist`. The system writes it some time after a change, so quit the app first, or use
/// ``init(reading:keys:)`` in the app itself. User defaults do not store when values were written: entries have the
/// time of the last change of the file, or the time of the call of ``init(reading:keys:)``. Values of
/// `SecurelyStoredValue` are in the keychain and cannot be imported.
public struct UserDefaultsSource: ImportSource {
  private enum Place: Sendable {
    case file(String)
    case values([String: Data], Date)
  }

  /// Far more than user defaults are meant for.
  private static let maximumSize = 256 << 20

  private let place: Place
  private let keys: Set<String>?

  /// The property list at a URL, binary or XML.
  ///
  /// - Parameter keys: The keys to import, each of which must have a value of Boutique's. Nil imports all
  ///   keys that have one.
  public init(at url: URL, keys: [String]? = nil) {
    place = .file(url.path(percentEncoded: false))
    self.keys = keys.map { Set($0) }
  }

  /// The current values of these keys in user defaults. A key without a value is omitted.
  ///
  /// - Throws: `StorageError` with code `decodingFailed` if one of them is not `Data`.
  public init(reading defaults: UserDefaults, keys: [String]) throws {
    var values: [String: Data] = [:]
    for key in keys {
      guard let object = defaults.object(forKey: key) else { continue }
      guard let data = object as? Data else { throw Self.notBoutiques(key, "the user defaults") }
      values[key] = data
    }
    place = .values(values, Timestamp.now().date)
    self.keys = Set(values.keys)
  }

  /// "the user defaults", followed by the path if they are read from a file.
  public var description: String {
    switch place {
    case .file(let path): "the user defaults \(path)"
    case .values: "the user defaults"
    }
  }

  /// Reads the property list. O(bytes).
  ///
  /// - Throws: as ``ImportSource/open()``; `StorageError` with code `decodingFailed` if one of the requested keys has
  ///   no value of Boutique's.
  @concurrent
  public func open() async throws -> any ImportContent {
    try await DedicatedThread.runOnNewThread { _ in try content() }
  }

  /// The value of a key, or nil if it has none. Reads the property list.
  ///
  /// - Throws: as ``open()``; `StorageError` with code `decodingFailed` if the value has another type.
  public func value<Value: Decodable>(_ type: Value.Type, forKey key: String) throws -> Value? {
    guard let found = try read().values[key] else { return nil }
    guard let data = found else { throw Self.notBoutiques(key, description) }
    do {
      return try BoutiqueValueCodec().decode(type, from: data)
    } catch {
      throw StorageError(
        .decodingFailed, "The value of \(key.debugDescription) in \(description) is not a \(type).",
        underlying: error)
    }
  }

  private func content() throws -> UserDefaultsContent {
    let (values, date) = try read()
    var content = UserDefaultsContent()
    for (key, data) in values.sorted(by: { $0.key < $1.key }) {
      if let keys, !keys.contains(key) { continue }
      if let json = data.flatMap(BoutiqueValueCodec.unboxed) {
        content.entries.append(
          StorageEntry(key: CacheKey(verbatim: key), data: json, createdAt: date, updatedAt: date))
      } else if keys != nil {
        throw Self.notBoutiques(key, description)
      } else {
        content.omissions.append("The value of \(key.debugDescription) is not one that Boutique stored.")
      }
    }
    if let missing = keys?.subtracting(values.keys).min() { throw Self.notBoutiques(missing, description) }
    return content
  }

  /// The values by key, nil for those that are not `Data`.
  private func read() throws -> (values: [String: Data?], date: Date) {
    guard case .file(let path) = place else {
      guard case .values(let values, let date) = place else { return ([:], .distantPast) }
      return (values.mapValues { $0 }, date)
    }
    guard let (file, status) = try FileDescriptor.openRegularFile(following: path) else {
      throw StorageError(.unsupported, "\(path) is not a file, so it is not a property list.")
    }
    guard status.size <= Self.maximumSize else {
      throw StorageError(.valueTooLarge, "\(path) has \(status.size) bytes, too many for user defaults.")
    }
    do {
      let values = try PropertyListDecoder().decode(
        untrusted: [String: PropertyListValue].self, from: file.readData(size: status.size))
      return (values.mapValues(\.data), SourceDate.date(status.modified))
    } catch let error as DecodingError {
      throw StorageError(
        .corrupted, "\(path), a file of \(status.size) bytes, is not a property list of user defaults.",
        underlying: error)
    }
  }

  private static func notBoutiques(_ key: String, _ place: String) -> StorageError {
    StorageError(
      .decodingFailed, "There is no value under \(key.debugDescription) in \(place) that Boutique stored.")
  }
}

private struct UserDefaultsContent: ImportContent {
  var entries: [StorageEntry] = []
  var omissions: [String] = []
  var count: Int { entries.count }

  func key(at index: Int) -> CacheKey { entries[index].key }
  func entry(at index: Int) -> StorageEntry { entries[index] }
}

/// The data in a property list, or nil for anything else.
private struct PropertyListValue: Decodable {
  let data: Data?

  init(from decoder: any Decoder) throws {
    data = try? decoder.singleValueContainer().decode(Data.self)
  }
}
