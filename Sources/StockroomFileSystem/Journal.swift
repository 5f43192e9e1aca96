import StockroomCore

/// The steps of a staged batch. Each step is idempotent.
struct Transaction: Sendable {
  enum Step: Sendable {
    /// Move a staged file to the path of an absent entry. May fail for lack of space.
    case create(CacheKey, staged: Int)
    /// Move a staged file over an entry.
    case replace(CacheKey, staged: Int)
    case remove(CacheKey)
    case removeAll
  }

  /// A number in the order of creation that belongs to no entry. Entries that existed before have smaller
  /// numbers, those that the batch or later writes create have larger ones, and are not removed by its steps.
  let boundary: UInt64
  var steps: [Step] = []
  /// Whether the completed steps are to be undone; otherwise the remaining ones are to be completed.
  var isAborted = false
  /// Whether it can only be completed, since some of the removed entries may be lost.
  var isIrreversible = false
}

/// The file that makes a batch atomic: once the transaction is in it, the batch will be completed or undone,
/// if necessary by the next holder of the lock. A transaction that is not complete in the file has not begun.
///
/// The file stays, so that neither beginning nor ending a transaction changes a directory, and keeps a
/// minimum size, so that removing works on a full disk. Layout, little-endian: 8 bytes of signature (or
/// zeros: nothing to do), then 64-bit numbers: boundary, length of the steps, CRC-32C of the boundary and the
/// steps; then the steps.
struct Journal: Sendable {
  static let name = "journal"
  private static let signature: UInt64 = 0x0001_4c4a_4b53_0a0d
  /// The signature of a transaction that is to be undone.
  private static let abortedSignature: UInt64 = 0x0002_4c4a_4b53_0a0d
  /// The signature of a transaction that cannot be undone any more.
  private static let irreversibleSignature: UInt64 = 0x0003_4c4a_4b53_0a0d
  private static let headerSize = 32
  private static let minimumSize = 16_384

  let file: FileDescriptor

  /// Gives a new file its minimum size.
  func prepare() throws {
    guard try file.status().size < Self.minimumSize else { return }
    try [UInt8](repeating: 0, count: Self.minimumSize).withUnsafeBytes { try file.write($0) }
  }

  /// The transaction that was begun and not ended; nil if there is none, or if it is not complete in the file.
  func read() throws -> Transaction? {
    let header = try file.readBytes(Self.headerSize, at: 0)
    guard let signature = header.word(at: 0),
      [Self.signature, Self.abortedSignature, Self.irreversibleSignature].contains(signature),
      let boundary = header.word(at: 8),
      let length = header.word(at: 16), let checksum = header.word(at: 24),
      length <= UInt64(max(0, try file.status().size - Self.headerSize))
    else { return nil }
    let steps = try file.readBytes(Int(length), at: Self.headerSize)
    guard steps.count == Int(length), Self.checksum(boundary, steps) == checksum else { return nil }
    var transaction = Transaction(boundary: boundary, encodedSteps: steps)
    transaction?.isAborted = signature == Self.abortedSignature
    transaction?.isIrreversible = signature == Self.irreversibleSignature
    return transaction
  }

  /// Begins the transaction. Once this returns, the transaction will be completed, unless ``abort()`` or ``end()`` is called
  /// first.
  func begin(_ transaction: Transaction) throws {
    let steps = transaction.encodedSteps
    var bytes: [UInt8] = []
    bytes.reserveCapacity(Self.headerSize + steps.count)
    bytes.append(word: Self.signature)
    bytes.append(word: transaction.boundary)
    bytes.append(word: UInt64(steps.count))
    bytes.append(word: Self.checksum(transaction.boundary, steps))
    bytes.append(contentsOf: steps)
    try bytes.withUnsafeBytes { try file.write($0) }
    try file.synchronize()
  }

  /// Marks the transaction as aborted: it will be undone. Needs neither space nor a descriptor.
  func abort() throws { try replaceSignature(by: Self.abortedSignature) }

  /// Marks the transaction as irreversible: it will be completed, since removed entries are lost from here on. Needs neither
  /// space nor a descriptor.
  func forbidUndoing() throws { try replaceSignature(by: Self.irreversibleSignature) }

  private func replaceSignature(by signature: UInt64) throws {
    try withUnsafeBytes(of: signature.littleEndian) { try file.write($0) }
    try file.synchronize()
  }

  /// Clears the journal and syncs it.
  func endSynchronously() throws {
    try end()
    try file.synchronize()
  }

  /// Clears the journal without syncing it.
  func end() throws {
    try [UInt8](repeating: 0, count: Self.headerSize).withUnsafeBytes { try file.write($0) }
    if try file.status().size > Self.minimumSize { try file.truncate(to: Self.minimumSize) }
  }

  /// Detects torn writes. It need not resist attackers.
  private static func checksum(_ boundary: UInt64, _ steps: [UInt8]) -> UInt64 {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(8 + steps.count)
    bytes.append(word: boundary)
    bytes.append(contentsOf: steps)
    return UInt64(CRC32C.checksum(bytes))
  }
}

// MARK: - Encoding

extension Transaction {
  private enum Kind: UInt8 {
    case create = 1
    case replace, remove, removeAll
  }

  /// For each step: a byte for its kind, the number of the staged file if there is one, the key if there is one.
  fileprivate var encodedSteps: [UInt8] {
    var bytes: [UInt8] = []
    for step in steps {
      switch step {
      case .create(let key, let staged):
        bytes.append(Kind.create.rawValue)
        bytes.append(word: UInt64(staged))
        bytes.append(key: key)
      case .replace(let key, let staged):
        bytes.append(Kind.replace.rawValue)
        bytes.append(word: UInt64(staged))
        bytes.append(key: key)
      case .remove(let key):
        bytes.append(Kind.remove.rawValue)
        bytes.append(key: key)
      case .removeAll:
        bytes.append(Kind.removeAll.rawValue)
      }
    }
    return bytes
  }

  /// Nil if the bytes are not a result of ``encodedSteps``.
  fileprivate init?(boundary: UInt64, encodedSteps bytes: [UInt8]) {
    self.boundary = boundary
    var rest = bytes[...]
    while let first = rest.popFirst() {
      switch Kind(rawValue: first) {
      case .create:
        guard let staged = rest.popWord(), let key = rest.popKey() else { return nil }
        steps.append(.create(key, staged: Int(truncatingIfNeeded: staged)))
      case .replace:
        guard let staged = rest.popWord(), let key = rest.popKey() else { return nil }
        steps.append(.replace(key, staged: Int(truncatingIfNeeded: staged)))
      case .remove:
        guard let key = rest.popKey() else { return nil }
        steps.append(.remove(key))
      case .removeAll: steps.append(.removeAll)
      case nil: return nil
      }
    }
  }
}

extension [UInt8] {
  fileprivate mutating func append(word: UInt64) {
    Swift.withUnsafeBytes(of: word.littleEndian) { append(contentsOf: $0) }
  }

  fileprivate mutating func append(key: CacheKey) {
    key.withUTF8 { bytes in
      append(UInt8(truncatingIfNeeded: bytes.count))
      append(UInt8(truncatingIfNeeded: bytes.count >> 8))
      append(contentsOf: bytes)
    }
  }

  fileprivate func word(at offset: Int) -> UInt64? {
    var slice = self[Swift.min(offset, count)...]
    return slice.popWord()
  }
}

extension ArraySlice<UInt8> {
  fileprivate mutating func popWord() -> UInt64? {
    guard count >= 8 else { return nil }
    defer { removeFirst(8) }
    return prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  fileprivate mutating func popKey() -> CacheKey? {
    guard let low = popFirst(), let high = popFirst() else { return nil }
    let length = Int(high) << 8 | Int(low)
    guard count >= length, length > 0 else { return nil }
    defer { removeFirst(length) }
    return prefix(length).withUnsafeBytes { CacheKey(utf8: $0) }
  }
}
