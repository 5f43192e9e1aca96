#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The methods of an engine that read. Checks of all such methods, or of all of a kind, use this list, so
/// that none is forgotten.
enum ReadMethod: String, CaseIterable, Sendable {
  case read, readMany, readDataAndKeys, readEntries
  case readAllData, readAllDataAndKeys, readAllEntries, scan
  case keyExists, keysExist, keyCount, allKeys, createdAt, updatedAt

  /// The name of the method in sentences.
  var call: String {
    switch self {
    case .read: "read(key:)"
    case .readMany: "read(keys:)"
    case .readDataAndKeys: "readDataAndKeys(keys:)"
    case .readEntries: "readEntries(keys:)"
    case .scan: "scan(_:limit:)"
    case .keyExists: "keyExists(_:)"
    case .keysExist: "keysExist(_:)"
    case .createdAt: "createdAt(key:)"
    case .updatedAt: "updatedAt(key:)"
    case .readAllData, .readAllDataAndKeys, .readAllEntries, .keyCount, .allKeys: "\(rawValue)()"
    }
  }

  /// The rule that the method breaks if its result is wrong although `read(key:)` returns the right values.
  var rule: ContractRule {
    switch self {
    case .read: .w1
    case .readMany, .readDataAndKeys: .r2
    case .readAllData, .readAllDataAndKeys: .r3
    case .readEntries, .readAllEntries: .r6
    case .keyExists, .keysExist: .l1
    case .keyCount: .l2
    case .allKeys: .k3
    case .createdAt, .updatedAt: .w2
    case .scan: .r5
    }
  }

  /// Whether one call reads one key.
  var isOfOneKey: Bool {
    switch self {
    case .read, .keyExists, .createdAt, .updatedAt: true
    default: false
    }
  }

  /// Whether one call reads the given keys, however many.
  var isOfManyKeys: Bool {
    switch self {
    case .readMany, .readDataAndKeys, .readEntries, .keysExist: true
    default: false
    }
  }

  /// Whether the result contains values.
  var givesValues: Bool {
    switch self {
    case .keyExists, .keysExist, .keyCount, .allKeys, .createdAt, .updatedAt: false
    default: true
    }
  }

  /// The methods that return values of any number of entries in one call.
  static let ofManyValues = allCases.filter { $0.givesValues && !$0.isOfOneKey }

  /// The capabilities with which one call returns one snapshot. The default `readEntries(keys:)` cannot, whatever the
  /// other methods do, but an engine that keeps the times of entries overrides it.
  var needsForSnapshot: EngineCapabilities {
    self == .readEntries ? [.snapshotReads, .preservesTimestamps] : .snapshotReads
  }

  /// The values that the method finds for these keys, which must be all existing ones, in the order of the method. If
  /// the method returns no values, there is a nil for each key. A method for a single key is called for each.
  func found(of keys: [CacheKey], in engine: EngineUnderTest) async throws -> [Data?] {
    func each(_ find: (CacheKey) async throws -> Data??) async throws -> [Data?] {
      var found: [Data?] = []
      for key in keys { if let data = try await find(key) { found.append(data) } }
      return found
    }
    func nothing(times count: Int) -> [Data?] { Array(repeating: nil, count: count) }
    return switch self {
    case .read: try await each { try await engine.read(key: $0).map { .some($0) } }
    case .readMany: try await engine.read(keys: keys)
    case .readDataAndKeys: try await engine.readDataAndKeys(keys: keys).map(\.data)
    case .readEntries: try await engine.readEntries(keys: keys).map(\.data)
    case .readAllData: try await engine.readAllData()
    case .readAllDataAndKeys: try await engine.readAllDataAndKeys().map(\.data)
    case .readAllEntries: try await engine.readAllEntries().map(\.data)
    case .scan: try await engine.scan(.all, limit: nil).map(\.data)
    case .keyExists: try await each { try await engine.keyExists($0) ? .some(nil) : nil }
    case .createdAt: try await each { try await engine.createdAt(key: $0) == nil ? nil : .some(nil) }
    case .updatedAt: try await each { try await engine.updatedAt(key: $0) == nil ? nil : .some(nil) }
    case .keysExist: nothing(times: try await engine.keysExist(keys).count)
    case .keyCount: nothing(times: try await engine.keyCount())
    case .allKeys: nothing(times: try await engine.allKeys().count)
    }
  }

  /// Whether the method finds the only entry.
  func finds(_ data: Data, under key: CacheKey, in engine: EngineUnderTest) async throws -> Bool {
    try await found(of: [key], in: engine) == [givesValues ? data : nil]
  }
}
