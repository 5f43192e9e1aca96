import StockroomCore

/// Which tables a database consists of, as its manifest tells.
///
/// Other tables may lie around: an interrupted compaction leaves unfinished ones behind.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/db/version_edit.cc>
struct LevelDBManifest {
  /// The sizes of the tables by their numbers.
  private(set) var tables: [UInt64: UInt64] = [:]

  /// The oldest log that holds batches which are in no table.
  private(set) var logNumber: UInt64 = 0
  /// Where each of its records ends.
  let ends: [Int]
  private let isWhole: Bool
  private(set) var fields: Set<Field> = []
  /// What LevelDB needs to open a database.
  static let required: Set<Field> = [.logNumber, .nextFileNumber, .lastSequence]

  /// Whether it has all that LevelDB needs to open the database, and ends where a record does.
  var isComplete: Bool { isWhole && fields.isSuperset(of: Self.required) }

  /// Reads the manifest that the file CURRENT names.
  ///
  /// - Throws: `StorageError` with code `corrupted` if there is none or it is corrupted.
  init(in files: LevelDBFiles) throws {
    try self.init(Self.currentName(in: files), in: files)
  }

  /// Reads the manifest of that name.
  ///
  /// - Parameter count: How many of its records are taken into account, from the first.
  /// - Throws: `StorageError` with code `corrupted` if there is none or it is corrupted.
  init(_ name: String, in files: LevelDBFiles, records count: Int = .max) throws {
    guard let bytes = try files.readIfPresent(name) else {
      throw StorageError(.corrupted, "\(files.path)/CURRENT does not name the manifest of the database.")
    }
    let log = bytes.withUnsafeBytes { LevelDBLog($0) }
    isWhole = log.ending == .whole
    ends = log.records.map(\.end)
    guard log.ending != .corrupted, log.records.prefix(count).allSatisfy({ apply($0.content) }) else {
      throw StorageError(
        .corrupted, "\(files.path)/\(name), the manifest of a LevelDB database, is corrupted.")
    }
  }

  /// What the file CURRENT says.
  static func currentName(in files: LevelDBFiles) throws -> String {
    let current = try files.read("CURRENT", count: 64)
    let name = String(decoding: current.dropLast(), as: UTF8.self)
    guard current.last == UInt8(ascii: "\n"), name.hasPrefix("MANIFEST-"), !name.contains("/") else {
      throw StorageError(.corrupted, "\(files.path)/CURRENT does not name the manifest of the database.")
    }
    return name
  }

  /// Verifies that the tables are there and have their size and an end.
  ///
  /// Costs one look at each table. The rest of a table has checksums, which are verified when it is read.
  ///
  /// - Throws: `StorageError` with code `corrupted` and the name of the first table that is not right.
  func verifyTables(in files: LevelDBFiles) throws {
    for (number, size) in tables.sorted(by: { $0.key < $1.key }) {
      try LevelDBTableFooter.verify(number, size: size, in: files)
    }
  }

  enum Field: UInt64 {
    case comparator = 1
    case logNumber, nextFileNumber, lastSequence, compactPointer, deletedFile, newFile
    case previousLogNumber = 9
  }

  /// Takes over what one record says. Returns false if it cannot be understood.
  private mutating func apply(_ record: [UInt8]) -> Bool {
    var reader = LevelDBReader(record[...])
    while !reader.isAtEnd {
      guard let field = reader.number().flatMap(Field.init(rawValue:)) else { return false }
      fields.insert(field)
      switch field {
      case .comparator:
        guard reader.skipString() else { return false }
      case .logNumber:
        guard let number = reader.number() else { return false }
        logNumber = number
      case .nextFileNumber, .lastSequence, .previousLogNumber:
        guard reader.number() != nil else { return false }
      case .compactPointer:
        guard reader.number() != nil, reader.skipString() else { return false }
      case .deletedFile:
        guard reader.number() != nil, let number = reader.number() else { return false }
        tables[number] = nil
      case .newFile:
        guard reader.number() != nil, let number = reader.number(), let size = reader.number(),
          reader.skipString(), reader.skipString()
        else { return false }
        tables[number] = size
      }
    }
    return true
  }
}

/// Takes numbers and strings from the front of some bytes, as LevelDB writes them.
struct LevelDBReader {
  private var rest: ArraySlice<UInt8>

  init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

  var isAtEnd: Bool { rest.isEmpty }

  /// Seven bits in each byte, the lowest first; the highest bit says that more follow.
  mutating func number() -> UInt64? {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 64, by: 7) {
      guard let byte = rest.popFirst() else { return nil }
      value |= UInt64(byte & 0x7F) << shift
      if byte & 0x80 == 0 { return value }
    }
    return nil
  }

  /// A length and as many bytes.
  mutating func skipString() -> Bool {
    guard let count = number(), count <= UInt64(rest.count) else { return false }
    rest.removeFirst(Int(count))
    return true
  }
}
