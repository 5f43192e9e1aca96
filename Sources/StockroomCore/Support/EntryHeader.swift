/// The metadata of an entry, in the 24 bytes that engines store.
package struct EntryHeader: Sendable, Hashable {
  package var createdAt: Timestamp
  package var updatedAt: Timestamp
  /// Increases with each first write of a key: the order of creation.
  package var sequence: UInt64

  /// The header of an entry that is written for the first time.
  package init(createdAt: Timestamp, sequence: UInt64) {
    self.createdAt = createdAt
    self.updatedAt = createdAt
    self.sequence = sequence
  }

  /// The header of an entry with these times.
  package init(createdAt: Timestamp, updatedAt: Timestamp, sequence: UInt64) {
    self.createdAt = createdAt
    self.updatedAt = updatedAt
    self.sequence = sequence
  }

  /// Sets the times of the entry, unless they are nil.
  package mutating func replaceTimes(by times: EntryTimes?) {
    guard let times else { return }
    createdAt = times.createdAt
    updatedAt = times.updatedAt
  }

  /// Updates the time for an overwrite. Time does not move backwards for an entry, even if the clock does
  /// (rule W2).
  package mutating func overwrite(at time: Timestamp) {
    updatedAt = max(updatedAt, time)
  }

  package static let encodedSize = 24

  /// Decodes the header in the first 24 bytes, or returns nil if there are fewer.
  package init?(decoding bytes: UnsafeRawBufferPointer) {
    guard bytes.count >= Self.encodedSize else { return nil }
    func word(_ index: Int) -> UInt64 {
      UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self))
    }
    createdAt = Timestamp(nanoseconds: Int64(bitPattern: word(0)))
    updatedAt = Timestamp(nanoseconds: Int64(bitPattern: word(1)))
    sequence = word(2)
  }

  /// Stores the header in the first 24 bytes of `bytes`, which must be large enough.
  package func encode(into bytes: UnsafeMutableRawBufferPointer) {
    func store(_ word: UInt64, _ index: Int) {
      bytes.storeBytes(of: word.littleEndian, toByteOffset: index * 8, as: UInt64.self)
    }
    store(UInt64(bitPattern: createdAt.nanoseconds), 0)
    store(UInt64(bitPattern: updatedAt.nanoseconds), 1)
    store(sequence, 2)
  }
}
