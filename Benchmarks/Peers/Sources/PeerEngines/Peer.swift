import Foundation
import StockroomCore
import StockroomEngines

/// An engine that Stockroom's engines are compared with.
public struct Peer: Sendable {
  /// The name in reports.
  public let name: String
  /// Whether it keeps entries on the server that Stockroom's engine has too.
  public var usesServer = false
  /// Opens it in an existing directory, which is empty or contains its files.
  public let open: @Sendable (URL, Durability) async throws -> any StorageEngine

  /// Every peer.
  public static let all = [
    Peer(name: "raw SQLite") { try SQLitePeer(directory: $0, durability: $1) },
    Peer(name: "raw LMDB") { try LMDBPeer(directory: $0, durability: $1) },
    Peer(name: "raw LevelDB") { try LevelDBPeer(directory: $0, durability: $1) },
    Peer(name: "raw libpq", usesServer: true) { try await onServer($0, $1, .unnest) },
    Peer(name: "raw libpq, COPY", usesServer: true) { try await onServer($0, $1, .copy) },
    Peer(name: "POSIX files") { try FilesPeer(directory: $0, durability: $1) },
    Peer(name: "Dictionary") { _, _ in DictionaryPeer() },
    Peer(name: "GRDB") { try GRDBPeer(directory: $0, durability: $1, calls: .blocking) },
    Peer(name: "GRDB awaited") { try GRDBPeer(directory: $0, durability: $1, calls: .awaited) },
  ]

  /// On the server that Stockroom's engine has too.
  private static func onServer(
    _ directory: URL, _ durability: Durability, _ batches: PostgreSQLPeer.Batches
  ) async throws -> PostgreSQLPeer {
    try await PostgreSQLServer.shared.start()
    return try PostgreSQLPeer(
      PostgreSQLServer.shared.connection, directory: directory, durability: durability, batches: batches)
  }
}

/// An engine that stores values only and blocks the calling thread: what a program does that does not need the rest of
/// the contract.
protocol PlainValues: StorageEngine {}

extension PlainValues {
  /// Reads the value.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await read(key: key) != nil }

  /// Throws `unsupported`.
  public func createdAt(key: CacheKey) async throws -> Date? { throw StorageError.noTimestamps }

  /// Throws `unsupported`.
  public func updatedAt(key: CacheKey) async throws -> Date? { throw StorageError.noTimestamps }

  /// Throws `unsupported`.
  public func readAllEntries() async throws -> [StorageEntry] { throw StorageError.noTimestamps }
}

extension StorageError {
  fileprivate static let noTimestamps = StorageError(.unsupported, "Peers keep no timestamps.")

  static func peer(_ message: String) -> StorageError { StorageError(.io, message) }
}

extension CacheKey {
  /// Calls `body` with the bytes of the key. Costs no copy.
  func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    if let result = try value.utf8.withContiguousStorageIfAvailable({ try body(UnsafeRawBufferPointer($0)) })
    {
      return result
    }
    return try Array(value.utf8).withUnsafeBytes(body)
  }

  /// The key that was stored as these bytes.
  init(bytes: UnsafeRawBufferPointer) { self.init(verbatim: String(decoding: bytes, as: UTF8.self)) }
}

/// The bounds of a scan.
struct ScanBounds {
  /// No key before this one is in the range.
  let start: [UInt8]
  let limit: Int
  private let after: [UInt8]?
  private let upTo: [UInt8]?
  private let prefix: [UInt8]

  enum Position { case before, inside, behind }

  init(_ range: KeyRange, limit: Int?) {
    prefix = Array((range.prefix ?? "").utf8)
    after = range.after.map { Array($0.value.utf8) }
    upTo = range.upTo.map { Array($0.value.utf8) }
    self.limit = max(0, limit ?? .max)
    start = if let after, prefix.lexicographicallyPrecedes(after) { after } else { prefix }
  }

  /// The position of a key that is not less than ``start``.
  func position(of key: UnsafeRawBufferPointer) -> Position {
    if let after, key.elementsEqual(after) { return .before }
    if let upTo, upTo.lexicographicallyPrecedes(key) { return .behind }
    return prefix.isEmpty || key.starts(with: prefix) ? .inside : .behind
  }
}
