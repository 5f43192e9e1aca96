extension Duration {
  var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }

  /// At least 1.
  var inNanoseconds: UInt64 {
    let nanoseconds = components.seconds * 1_000_000_000 + components.attoseconds / 1_000_000_000
    return UInt64(max(1, nanoseconds))
  }
}
