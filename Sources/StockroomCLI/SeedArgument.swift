import ArgumentParser

/// Parses a seed.
///
/// - Throws: `ValidationError` with the range of seeds.
func parseSeed(_ argument: String) throws -> UInt64 {
  guard let seed = UInt64(argument) else {
    throw ValidationError("The seed must be a whole number between 0 and \(UInt64.max), not \(argument).")
  }
  return seed
}
