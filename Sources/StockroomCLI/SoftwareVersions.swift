import StockroomCLMDB
import StockroomCLevelDB
import StockroomCPostgreSQL
import StockroomCSQLite

/// The versions of Stockroom and of the libraries of the built-in engines.
let softwareVersions: [String] = {
  var (major, minor, patch): (CInt, CInt, CInt) = (0, 0, 0)
  _ = mdb_version(&major, &minor, &patch)
  return [
    "Stockroom \(StockroomCommand.configuration.version)",
    "SQLite \(String(cString: sqlite3_libversion()))",
    "LMDB \(major).\(minor).\(patch)",
    "LevelDB \(leveldb_major_version()).\(leveldb_minor_version())",
    "libpq \(PQlibVersion() / 10_000).\(PQlibVersion() % 10_000)",
  ]
}()
