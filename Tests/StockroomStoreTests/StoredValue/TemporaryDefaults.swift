import Foundation

/// User defaults for one test, removed with the last reference.
final class TemporaryDefaults: Sendable {
  let suiteName: String
  private let isOwner: Bool

  init() {
    suiteName = "stockroom-\(UUID().uuidString)"
    isOwner = true
  }

  /// The user defaults of another process, which removes them.
  init(of suiteName: String) {
    self.suiteName = suiteName
    isOwner = false
  }

  /// A new `UserDefaults` object of the same suite with each call.
  func open() throws -> UserDefaults {
    guard let defaults = UserDefaults(suiteName: suiteName) else { throw CocoaError(.fileNoSuchFile) }
    return defaults
  }

  /// The stored bytes under a key, bypassing all caches where there is a file.
  func stored(_ key: String) throws -> Data? {
    #if os(Linux)
      try content()[key]
    #else
      try open().data(forKey: key)
    #endif
  }

  /// Stores bytes under a key, as only another program would.
  func put(_ bytes: Data?, forKey key: String) throws {
    #if os(Linux)
      var values = try content()
      values[key] = bytes
      let entries = values.map { Content.Entry(key: $0.key, value: $0.value) }
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      try JSONEncoder().encode(Content(version: 1, values: entries)).write(to: file, options: .atomic)
    #else
      if let bytes { try open().set(bytes, forKey: key) } else { try open().removeObject(forKey: key) }
    #endif
  }

  deinit {
    guard isOwner else { return }
    UserDefaults(suiteName: suiteName)?.removePersistentDomain(forName: suiteName)
    #if os(Linux)
      try? FileManager.default.removeItem(at: preferences)
      try? FileManager.default.removeItem(at: suiteDirectory)
    #endif
  }
}

#if os(Linux)
  extension TemporaryDefaults {
    private struct Content: Codable {
      struct Entry: Codable {
        var key: String
        var value: Data
      }
      var version: Int
      var values: [Entry]
    }

    private func content() throws -> [String: Data] {
      guard FileManager.default.fileExists(atPath: file.path) else { return [:] }
      let content = try JSONDecoder().decode(Content.self, from: Data(contentsOf: file))
      return Dictionary(uniqueKeysWithValues: content.values.map { ($0.key, $0.value) })
    }

    private var configuration: URL {
      ProcessInfo.processInfo.environment["XDG_CONFIG_HOME"].map {
        URL(filePath: $0, directoryHint: .isDirectory)
      }
        ?? FileManager.default.homeDirectoryForCurrentUser.appending(path: ".config")
    }

    /// The file in which Foundation keeps its own preferences.
    private var preferences: URL { configuration.appending(path: "\(suiteName).plist") }
    /// The directory of the suite.
    var suiteDirectory: URL { configuration.appending(path: suiteName) }
    var directory: URL { suiteDirectory.appending(path: "Stockroom") }
    /// The file on disk.
    var file: URL { directory.appending(path: "StoredValues.json") }
  }
#endif
