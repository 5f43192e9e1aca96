import StockroomCore

/// The contents of the directory of a database, by the names that LevelDB and the engine give their files.
struct LevelDBFileList {
  var current: String?
  var manifests: [String] = []
  var logs: [String] = []
  var tables: [String] = []
  /// All of these files, and the other files of LevelDB and of the engine.
  var all: [String] = []

  init(in files: LevelDBFiles) throws {
    for name in try files.names() {
      if name == "CURRENT" {
        current = name
      } else if name.hasPrefix("MANIFEST-") {
        manifests.append(name)
      } else if Self.number(ofLog: name) != nil {
        logs.append(name)
      } else if name.hasSuffix(".ldb") || name.hasSuffix(".sst") {
        tables.append(name)
      } else if !["LOCK", "LOG", "LOG.old"].contains(name), !name.hasPrefix("STOCKROOM"),
        !name.hasSuffix(".dbtmp")
      {
        // It belongs neither to LevelDB nor to the engine.
        continue
      }
      all.append(name)
    }
    logs.sort(by: Self.isBefore)
  }

  /// Whether the number in the first name is less than that in the second; the rest of the names must be the same.
  /// Numbers have six digits or more: they are padded with zeros only up to six.
  static func isBefore(_ first: String, _ second: String) -> Bool {
    (first.utf8.count, first) < (second.utf8.count, second)
  }

  /// The number in a name such as `000005.log`. Nil if it is not the name of a log.
  static func number(ofLog name: String) -> UInt64? {
    let digits = name.dropLast(".log".count)
    return name.hasSuffix(".log") && isNumber(digits) ? UInt64(digits) : nil
  }

  /// Whether the text consists of digits. `UInt64` would also accept a sign.
  static func isNumber(_ text: Substring) -> Bool { text.utf8.allSatisfy { (0x30...0x39).contains($0) } }

  static func manifestName(_ number: UInt64) -> String { "MANIFEST-" + padded(number) }
  static func logName(_ number: UInt64) -> String { padded(number) + ".log" }
  static func tableName(_ number: UInt64) -> String { padded(number) + ".ldb" }
  /// The name that LevelDB gave to a table before version 1.14.
  static func oldTableName(_ number: UInt64) -> String { padded(number) + ".sst" }

  static func padded(_ number: UInt64) -> String {
    let digits = String(number)
    return String(repeating: "0", count: max(0, 6 - digits.count)) + digits
  }

  /// Verifies that LevelDB, which opens files by their names and follows links, finds only regular files.
  ///
  /// - Parameters:
  ///   - allowsDirectories: Whether directories are accepted. LevelDB cannot open one as a file.
  ///   - body: Called with each file, regular or not.
  /// - Throws: `StorageError` with code `corrupted`.
  func verifyKinds(
    in files: LevelDBFiles, allowingDirectories allowsDirectories: Bool = false,
    _ body: (_ name: String, FileStatus) -> Void = { _, _ in }
  ) throws {
    for name in all {
      guard let status = try files.status(of: name) else { continue }
      body(name, status)
      if status.isRegularFile || allowsDirectories && status.isDirectory { continue }
      throw StorageError(.corrupted, "\(files.path)/\(name) is not a regular file.")
    }
  }
}
