import StockroomCore

/// The tables of a database, according to its manifest.
///
/// There may be other tables: an interrupted compaction leaves unfinished ones.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/db/version_edit.cc>
struct LevelDBManifest {
  /// The sizes of the tables by their numbers.
  private(set) var tables: [UInt64: UInt64] = [:]

  /// The description of each table: its level in the tree, its number, size, first and last key.
  private var descriptions: [UInt64: ArraySlice<UInt8>] = [:]
  private var comparator: ArraySlice<UInt8> = []
  /// The numbers that concern the database as a whole.
  private var numbers: [Field: UInt64] = [:]

  /// The oldest log with batches that are not in any table.
  var logNumber: UInt64 { numbers[.logNumber] ?? 0 }
  /// The last sequence number that was in use when LevelDB last wrote the manifest.
  var lastSequence: UInt64 { numbers[.lastSequence] ?? 0 }
  /// Whether no batch has ever been moved to a table.
  var isUnused: Bool { tables.isEmpty && lastSequence == 0 }
  private let name: String
  /// The offset at which each of its records ends.
  let ends: [Int]
  private let isWhole: Bool
  /// The number of the first records that suffice for LevelDB to open the database.
  private var sufficientCount: Int?
  /// The fields that LevelDB needs to open a database.
  private static let required: Set<Field> = [.logNumber, .nextFileNumber, .lastSequence]

  /// Whether it has all fields that LevelDB needs to open the database.
  var isSufficient: Bool { Self.required.isSubset(of: numbers.keys) }
  /// Whether it is sufficient and ends at the end of a record.
  var isComplete: Bool { isWhole && isSufficient }

  /// Reads the manifest that the file CURRENT names.
  ///
  /// - Throws: `StorageError` with code `corrupted` if there is none or it is corrupted.
  init(in files: LevelDBFiles) throws {
    try self.init(Self.currentName(in: files), in: files)
  }

  /// Reads the manifest of that name.
  ///
  /// - Parameter count: The number of its records that are used, from the first.
  /// - Throws: `StorageError` with code `corrupted` if there is none or it is corrupted.
  init(_ name: String, in files: LevelDBFiles, records count: Int = .max) throws {
    guard let bytes = try files.readIfPresent(name) else {
      throw StorageError(.corrupted, "\(files.path)/CURRENT does not name the manifest of the database.")
    }
    self.name = name
    let log = bytes.withUnsafeBytes { LevelDBLog($0, searchingBehindCorruption: .anyRecord) }
    isWhole = log.ending == .whole
    ends = log.records.map(\.end)
    let isSound = log.records.prefix(count).enumerated().allSatisfy { index, record in
      guard apply(record.content) else { return false }
      if sufficientCount == nil, isSufficient { sufficientCount = index + 1 }
      return true
    }
    guard log.ending != .corrupted, isSound else {
      throw StorageError(
        .corrupted, "\(files.path)/\(name), the manifest of a LevelDB database, is corrupted.")
    }
  }

  /// The name in the file CURRENT.
  static func currentName(in files: LevelDBFiles) throws -> String {
    let current = try files.read("CURRENT", count: 64)
    let name = String(decoding: current.dropLast(), as: UTF8.self)
    guard current.last == UInt8(ascii: "\n"), name.hasPrefix("MANIFEST-"), !name.contains("/") else {
      throw StorageError(.corrupted, "\(files.path)/CURRENT does not name the manifest of the database.")
    }
    return name
  }

  /// Verifies that the tables exist, have the recorded sizes, and have a valid footer.
  ///
  /// Costs one check of each table. The rest of a table has checksums, which are verified when it is read.
  ///
  /// - Throws: `StorageError` with code `corrupted` and the name of the first invalid table.
  func verifyTables(in files: LevelDBFiles) throws {
    for (number, size) in tables.sorted(by: { $0.key < $1.key }) {
      try LevelDBTableFooter.verify(number, size: size, in: files)
    }
  }

  /// Writes a manifest of one record, if LevelDB could open the database with only some of the records.
  ///
  /// LevelDB also treats a read that returns fewer bytes than requested as the end of the manifest, and would
  /// remove the tables that are missing from the part that it has read. It either reads a single record
  /// completely, or does not open the database.
  func joinRecords(in files: LevelDBFiles) throws -> LevelDBManifest {
    guard let sufficientCount, sufficientCount < ends.count, let number = numbers[.nextFileNumber],
      number < .max
    else { return self }
    var record = Self.encoded(Field.comparator.rawValue)
    record += Self.encoded(UInt64(comparator.count)) + comparator
    for field in [Field.logNumber, .previousLogNumber, .nextFileNumber, .lastSequence] {
      guard let value = numbers[field] else { continue }
      // The number of the next file is used for this manifest.
      record += Self.encoded(field.rawValue) + Self.encoded(field == .nextFileNumber ? value + 1 : value)
    }
    for number in tables.keys.sorted() {
      guard let description = descriptions[number] else { continue }
      record += Self.encoded(Field.newFile.rawValue) + description
    }
    let name = LevelDBFileList.manifestName(number)
    try files.replace(name, with: LevelDBLog.bytes(of: record))
    try files.synchronize()
    try files.replace("CURRENT", with: Array("\(name)\n".utf8))
    try files.synchronize()
    return try LevelDBManifest(name, in: files)
  }

  private static func encoded(_ number: UInt64) -> [UInt8] {
    var (bytes, rest) = ([UInt8](), number)
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    return bytes + [UInt8(rest)]
  }

  enum Field: UInt64 {
    case comparator = 1
    case logNumber, nextFileNumber, lastSequence, compactPointer, deletedFile, newFile
    case previousLogNumber = 9
  }

  /// Applies one record. Returns false if it cannot be decoded.
  private mutating func apply(_ record: [UInt8]) -> Bool {
    var reader = LevelDBReader(record[...])
    while !reader.isAtEnd {
      guard let field = reader.number().flatMap(Field.init(rawValue:)) else { return false }
      switch field {
      case .comparator:
        guard let name = reader.string() else { return false }
        comparator = name
      case .logNumber, .nextFileNumber, .lastSequence, .previousLogNumber:
        guard let number = reader.number() else { return false }
        numbers[field] = number
      case .compactPointer:
        guard reader.number() != nil, reader.string() != nil else { return false }
      case .deletedFile:
        guard reader.number() != nil, let number = reader.number() else { return false }
        tables[number] = nil
      case .newFile:
        let start = reader.rest
        guard reader.number() != nil, let number = reader.number(), let size = reader.number(),
          reader.string() != nil, reader.string() != nil
        else { return false }
        tables[number] = size
        descriptions[number] = start.dropLast(reader.rest.count)
      }
    }
    return true
  }
}

/// Decodes numbers and strings from the beginning of some bytes, in LevelDB's encoding.
struct LevelDBReader {
  private(set) var rest: ArraySlice<UInt8>

  init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

  var isAtEnd: Bool { rest.isEmpty }

  /// Seven bits in each byte, the lowest first; the highest bit means that more follow.
  mutating func number() -> UInt64? {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 64, by: 7) {
      guard let byte = rest.popFirst() else { return nil }
      value |= UInt64(byte & 0x7F) << shift
      if byte & 0x80 == 0 { return value }
    }
    return nil
  }

  /// A length and that many bytes.
  mutating func string() -> ArraySlice<UInt8>? {
    guard let count = number(), count <= UInt64(rest.count) else { return nil }
    defer { rest.removeFirst(Int(count)) }
    return rest.prefix(Int(count))
  }
}
