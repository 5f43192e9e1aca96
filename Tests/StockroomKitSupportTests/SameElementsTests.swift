import Foundation
import StockroomKitSupport
import Testing

@Suite("Lists with the same values") struct SameElementsTests {
  private let beginning = Data(repeating: 1, count: 100)
  private var long: [Data?] { (UInt8(0)..<3).map { beginning + [$0] } }

  @Test("They may be in another order")
  func order() {
    let none: [Data?] = []
    #expect(none.hasSameElements(as: []))
    #expect(([nil, Data()] + long).hasSameElements(as: long.reversed() + [Data(), nil]))
  }

  @Test("Each value is there equally often")
  func repetitions() {
    #expect(!(long + [long[0]]).hasSameElements(as: long + [long[1]]))
    #expect(!long.hasSameElements(as: long + [nil]))
    #expect(![nil, nil, Data()].hasSameElements(as: [nil, Data(), Data()]))
  }

  @Test("A difference behind the same beginning counts")
  func ends() {
    #expect(!long.hasSameElements(as: [long[0], long[1], beginning + [9]]))
  }
}
