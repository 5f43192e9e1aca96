import Foundation

extension Place {
  /// Whether a path leads to one of the files of the place, or to a path at which its engine may create one.
  func hasFile(at url: URL) -> Bool {
    guard case .local(let engine, let path) = self else { return false }
    let components = url.resolvedComponents
    func isOne(of paths: [String]) -> Bool {
      paths.contains { components == URL(commandLinePath: $0).resolvedComponents }
    }
    func isBelow(_ directory: String) -> Bool {
      components.starts(with: URL(commandLinePath: directory).resolvedComponents)
    }
    switch engine {
    case .sqlite:
      let file = SQLiteLocation(path: path)?.file ?? path
      return isOne(of: ["", "-wal", "-shm", "-journal", "-changes"].map { file + $0 })
    case .lmdb: return isOne(of: ["data.mdb", "lock.mdb", "changes.log"].map { "\(path)/\($0)" })
    case .leveldb: return isBelow("\(path)/Stockroom.leveldb")
    case .files:
      return isBelow("\(path)/.stockroom") || isBelow(path) && components.last?.hasSuffix(".entry") == true
    }
  }
}
