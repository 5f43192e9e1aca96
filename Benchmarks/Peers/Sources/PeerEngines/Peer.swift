import Foundation
import StockroomCore
import StockroomEngines

/// An engine that Stockroom's engines are compared with.
public struct Peer: Sendable {
  /// The name in reports.
  public let name: String
  /// Whether it stores entries on the PostgreSQL server that Stockroom's engine uses.
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

  /// Opens a peer on the PostgreSQL server that Stockroom's engine uses.
  private static func onServer(
    _ directory: URL, _ durability: Durability, _ batches: PostgreSQLPeer.Batches
  ) async throws -> PostgreSQLPeer {
    try await PostgreSQLServer.shared.start()
    return try PostgreSQLPeer(
      PostgreSQLServer.shared.connection, directory: directory, durability: durability, batches: batches)
  }
}

extension StorageError {
  /// The error of a peer, usually with the text of its library.
  static func peer(_ message: String) -> StorageError { StorageError(.io, message) }
}
