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

  @Test("The difference says which value, and how many there are more or fewer")
  func difference() {
    let none: [Data?] = []
    #expect(long.difference(from: long.reversed()) == nil)
    let more = (long + [long[1], long[1]]).difference(from: long)
    #expect(more?.value == long[1] && more?.surplus == 2)
    let fewer = none.difference(from: [beginning])
    #expect(fewer?.value == beginning && fewer?.surplus == -1)
  }
}
