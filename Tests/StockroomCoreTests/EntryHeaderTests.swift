import StockroomCore
import Testing

@Suite struct EntryHeaderTests {
  @Test("A header is restored from its bytes, and keeps time from moving backwards")
  func header() throws {
    var header = EntryHeader(createdAt: Timestamp(nanoseconds: 100), sequence: .max)
    header.overwrite(at: Timestamp(nanoseconds: 50))
    #expect(header.updatedAt == Timestamp(nanoseconds: 100))
    header.overwrite(at: Timestamp(nanoseconds: 150))
    var bytes = [UInt8](repeating: 0, count: EntryHeader.encodedSize)
    bytes.withUnsafeMutableBytes { header.encode(into: $0) }
    #expect(bytes.withUnsafeBytes { EntryHeader(decoding: $0) } == header)
    #expect(bytes.dropLast().withUnsafeBytes { EntryHeader(decoding: $0) } == nil)
  }
}
