extension RangeReplaceableCollection where Element: Equatable {
  /// Puts an element into the place of the first one that equals another. Returns false if there is none.
  mutating func replaceFirst(_ element: Element, with replacement: Element) -> Bool {
    guard let index = firstIndex(of: element) else { return false }
    replaceSubrange(index..<self.index(after: index), with: CollectionOfOne(replacement))
    return true
  }

  /// Removes every element that equals this one, or appends it if there is none.
  mutating func togglePresence(of element: Element) {
    let count = count
    removeAll { $0 == element }
    if self.count == count { append(element) }
  }
}
