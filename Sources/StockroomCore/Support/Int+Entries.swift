extension Int {
  /// The number of entries with its noun, for messages: "1 entry", "2 entries".
  package var entryCountText: String { self == 1 ? "1 entry" : "\(self) entries" }
}
