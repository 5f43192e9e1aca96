import Foundation
import StockroomCore
import Testing

@Suite struct CacheKeyTests {
  @Test("A key made from a text is the MD5 digest, formatted like a UUID")
  func hashed() throws {
    #expect(CacheKey("cache-key").value == "2536A137-81F3-3E55-574F-AFF9ACB9F995")
    #expect(CacheKey("").value == "D41D8CD9-8F00-B204-E980-0998ECF8427E")
    #expect(
      CacheKey("12345678901234567890123456789012345678901234567890123456789012345678901234567890").value
        == "57EDF4A2-2BE3-C955-AC49-DA2E2107B67A")
    #expect(CacheKey("cache-key").rawValue == "cache-key")
  }
}
