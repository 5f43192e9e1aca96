import Foundation
import PeerEngines
import StockroomCore
import StockroomEngines

/// One of Stockroom's engines, or a peer.
struct Subject: Sendable {
  let name: String
  let usesServer: Bool
  let open: @Sendable (URL, Durability) async throws -> any StorageEngine

  static let all =
    EngineCatalog.all.map { Subject(name: $0.title, usesServer: $0.database != nil, open: $0.open) }
    + Peer.all.map { Subject(name: $0.name, usesServer: $0.usesServer, open: $0.open) }
}
