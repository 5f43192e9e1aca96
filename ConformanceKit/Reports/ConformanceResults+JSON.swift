#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ConformanceResults: Encodable {
  private enum CodingKeys: CodingKey { case conforms, engines }

  /// Encodes the reports as `engines`, and whether all is well as `conforms`, which is null if nothing failed but not every
  /// check was made that applies to the engines.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    // Null, where what is made for the type would leave it out.
    try container.encode(conforms, forKey: .conforms)
    try container.encode(reports, forKey: .engines)
  }

  private var conforms: Bool? {
    if !reports.allSatisfy(\.failures.isEmpty) { return false }
    return isConforming && isComplete ? true : nil
  }

  /// The results as a JSON object with its keys in alphabetical order, ending with the end of a line.
  public func json() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    return try encoder.encode(self) + Data("\n".utf8)
  }
}
