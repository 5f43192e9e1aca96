extension String {
  /// Whether it has visible characters of ASCII alone, and no backslash.
  package var isPlain: Bool {
    // Here, since this module is optimized where the kits are not: tests ask about the same keys a million times.
    utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") }
  }
}
