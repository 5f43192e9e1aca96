#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Keys that an engine may use internally, and values that it may interpret in a special way.
enum ReservedNames {
  /// Names that engines, databases and file systems use for internal data.
  static let keys: [CacheKey] = {
    let stems = [
      "__meta__", "_meta", "meta", "metadata", ".metadata", "META", "__metadata__", "_id", "_rev", "_deleted",
      "id",
      "key", "keys", "value", "data", "count", "keyCount", "size", "length", "index", "_index", "__index__",
      "idx",
      "order", "sequence", "seq", "created", "createdAt", "updatedAt", "version", "_version", "schema",
      "header",
      "root", "manifest", "MANIFEST", "MANIFEST-000001", "CURRENT", "LOG", "LOCK", "lock", ".lock",
      "__lock__", "journal",
      "log", "wal", "tmp", "temp", ".tmp", "trash", ".Trash", "tombstone", "__tombstone__", "deleted", "all",
      "*all*",
      "entries", "default", "main", "sqlite_master", "sqlite_sequence", "rowid", "__proto__", "constructor",
      "toString",
      "undefined", "null", "nil", "true", "false", "_", "__", "$", "$key", "@", "#", "!", "~", "-", ":", "::",
      "|", ";",
      ",", ".", "..", "...", "0", "-1", "000001.log", "000001.ldb", "data.mdb", "lock.mdb", "db.sqlite",
      "cache.db",
      "lost+found", ".nfs0001", ".fseventsd", "thumbs.db",
    ]
    let endings = [
      ".lock", ".tmp", ".temp", ".bak", ".old", ".new", ".part", ".journal", "-journal", "-wal", "-shm",
      ".meta",
      ".metadata", ".idx", ".index", ".json", ".gz", ".deleted", ".tombstone", "~", ".0", ".1", "#", ":meta",
      ":created",
      "/meta", "/", "/index", "\0meta", "\u{1}", "@2", "$", "!", ".", " ", "..", "%00", "*", "%", "_",
    ]
    let beginnings = [
      "meta:", "meta/", "m:", "metadata:", "_", "__", ".", "..", "~", "#", "$", "!", "\0", "idx:", "index:",
      "index/",
      "ts:", "time:", "created:", "updated:", "exp:", "expires:", "ttl:", "lock:", "lock/", "tmp-", "tmp.",
      ".#",
      ".~", "count:", "seq:", "version:", "v:", "k:", "d:", "h:", "t:", "data:", "key:", "deleted:",
      "tombstone:",
    ]
    let separators = ["", ".", "/", ":", "|", "-", "_", "\0", "\u{1F}", "#", "@", ","]
    // Data stored next to an entry under a similar name; and keys that are prefixes of each other, or would be if a
    // separator were not escaped.
    var names = stems + ["p", "q", "r", "p_q", "pXq"]
    for stem in ["entry", "a", "ENTRY", "Entry"] { names += [stem] + endings.map { stem + $0 } }
    names += beginnings.map { $0 + "entry" }
    for separator in separators {
      names += ["p\(separator)q", "p\(separator)q\(separator)r", "p\(separator)", "\(separator)q"]
    }
    var seen: Set<CacheKey> = []
    return names.map(CacheKey.init(verbatim:)).filter { seen.insert($0).inserted }
  }()

  /// Keys named like the files in a directory, like parts of their names, and like combinations of these.
  static func keys(like directory: URL) throws -> [CacheKey] {
    var names: Set<String> = []
    let paths = try DirectoryContents(of: directory).files.keys.sorted()
    // An engine may have a file for each entry.
    for (number, path) in paths.enumerated() where number % (paths.count / 60 + 1) == 0 {
      let parts = path.split(separator: "/").map(String.init)
      names.formUnion([path] + parts)
      guard let name = parts.last else { continue }
      let stem = name.split(separator: ".", omittingEmptySubsequences: false).dropLast().joined(
        separator: ".")
      names.formUnion([stem, name.lowercased(), name.uppercased()])
      names.formUnion([".tmp", ".lock", "-wal", "-journal", "~", ".0", ".new"].map { name + $0 })
      names.insert("." + name)
    }
    return names.map(CacheKey.init(verbatim:)).filter { (1...511).contains($0.value.utf8.count) }
      .inByteOrder()
  }

  /// Values that begin or end like the files in a directory, and small files as a whole. An engine may recognize a
  /// value that it has encoded itself by the first bytes.
  static func values(like directory: URL) throws -> [Data] {
    let files = try DirectoryContents(of: directory).files.sorted { $0.key < $1.key }.compactMap(\.value)
    var (values, beginnings): (Set<Data>, Set<Data>) = ([], [])
    // An engine may have a file for each entry. The files of large entries are more likely to be encoded.
    for contents in files.sorted(by: { $0.count > $1.count }) where beginnings.count < 16 {
      guard beginnings.insert(Data(contents.prefix(4))).inserted else { continue }
      for count in [4, 8, 16, 64] { values.insert(Data(contents.prefix(count))) }
      values.insert(Data(contents.suffix(16)))
      if contents.count <= 65_536 { values.insert(contents) }
    }
    return values.sorted { $0.lexicographicallyPrecedes($1) }
  }

  /// Bytes with a meaning in some format: removed, absent, compressed, a header, a reference.
  static let values: [Data] = {
    let texts = [
      "", "\0", "null", "undefined", "nil", "NULL", "{}", "[]", "\"\"", "{\"deleted\":true}",
      "{\"_deleted\":true}",
      "__deleted__", "DELETED", "deleted", "tombstone", "TOMBSTONE", "__TOMBSTONE__", "<deleted>", "<null>",
      "$null",
      "NOT_FOUND", "404", "EOF", "END", "END\r\n", "\r\n", "-1", "$-1\r\n", "*-1\r\n", "expired", "0", "1",
      "false",
      "{\"value\":\"x\",\"expires\":0}", "{\"data\":\"eA==\"}", "data:;base64,eA==", "base64:eA==", "eA==",
      "file://x",
      "@file", "@./x", "ref:other", "->other", "SQLite format 3\0", "bplist00", "PK\u{3}\u{4}", "%PDF-1.4",
      "#!/bin/sh",
      "version https://git-lfs.github.com/spec/v1\n", "i:1;", "a:0:{}", "\u{1}", "v1", "v1:", "1:x",
      "00000000",
    ]
    let bytes: [[UInt8]] = [
      // Empty data, compressed by gzip, LZ4 and zstd, each as a complete file.
      [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0],
      [0x04, 0x22, 0x4D, 0x18, 0x64, 0x40, 0xA7, 0, 0, 0, 0, 0x05, 0x5D, 0xCC, 0x02],
      [0x28, 0xB5, 0x2F, 0xFD, 0x24, 0, 1, 0, 0, 0x99, 0xE9, 0xD8, 0x51],
      // Headers of deflate, gzip, zstd, LZ4, snappy, bzip2, xz and LZFSE, and data that begins like these.
      [0x1F, 0x8B], [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3], [0x78, 0x01], [0x78, 0x9C, 3, 0, 0, 0, 0, 1],
      [0x78, 0xDA],
      [0x28, 0xB5, 0x2F, 0xFD], [0x04, 0x22, 0x4D, 0x18],
      [0xFF, 6, 0, 0, 0x73, 0x4E, 0x61, 0x50, 0x70, 0x59],
      [0x42, 0x5A, 0x68, 0x39], [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0], [0x62, 0x76, 0x78, 0x2D],
      [0x62, 0x76, 0x78, 0x32],
      // LevelDB's and LMDB's magic numbers; tags, lengths and flags in one byte or more.
      [0x57, 0xFB, 0x80, 0x8B, 0x24, 0x75, 0x47, 0xDB], [0xDE, 0xC0, 0xEF, 0xBE], [0xDE, 0xAD, 0xBE, 0xEF],
      [0xEF, 0xBE, 0xAD, 0xDE], [0xCA, 0xFE, 0xBA, 0xBE], [0], [1], [2], [0xFE], [0xFF], [0, 0],
      [0, 0, 0, 0],
      [1, 0, 0, 0], [0xFF, 0xFF, 0xFF, 0xFF], [UInt8](repeating: 0, count: 8),
      [UInt8](repeating: 0xFF, count: 8),
      [UInt8](repeating: 0xFF, count: 16), [0xC0], [0xF6], [0x80, 0x04, 0x4E, 0x2E], [0xEF, 0xBB, 0xBF],
    ]
    return texts.map { Data($0.utf8) } + bytes.map { Data($0) }
  }()
}
