#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ConformanceResults: Encodable {
  private enum CodingKeys: CodingKey { case conforms, engines }

  /// Encodes the reports as `engines`, and as `conforms` whether the engines follow the contract: null if
  /// nothing failed but not all checks that apply were run.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    // Encoded as null, where synthesized code would omit it.
    try container.encode(conforms, forKey: .conforms)
    try container.encode(reports, forKey: .engines)
  }

  private var conforms: Bool? {
    if !reports.allSatisfy(\.failures.isEmpty) { return false }
    return isConforming && isComplete ? true : nil
  }

  /// The results as a JSON object with sorted keys, followed by a line feed.
  public func json() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    return try encoder.encode(self) + Data("\n".utf8)
  }
}
