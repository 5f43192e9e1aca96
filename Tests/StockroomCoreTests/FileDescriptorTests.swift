import StockroomCore
import Testing

@Suite struct FileDescriptorTests {
  @Test("More bytes than fit into memory are refused, whatever their file has")
  func moreThanMemory() throws {
    let file = try FileDescriptor.makeNamelessFile()
    try [UInt8](1...3).withUnsafeBytes { try file.write($0) }
    for count in [1 << 50, Int.max] {
      let error = #expect(throws: StorageError.self) { try file.readBytes(count) }
      #expect(error?.code == .io)
    }
    #expect(try file.readBytes(1 << 25) == [1, 2, 3])
  }
}
