import StockroomCore
import Testing

@Suite("Binary search") struct BinarySearchTests {
  @Test(
    "It finds the first element of the second partition, wherever the partition point is", arguments: 0..<20)
  func partitions(count: Int) {
    for boundary in 0...count {
      #expect((0..<count).partitioningIndex { $0 >= boundary } == boundary)
      #expect(Array(0..<count)[...].partitioningIndex { $0 >= boundary } == boundary)
    }
  }

  @Test("An error of the predicate is rethrown")
  func failure() {
    struct Failure: Error {}
    #expect(throws: Failure.self) { try [1].partitioningIndex { _ in throw Failure() } }
  }
}
