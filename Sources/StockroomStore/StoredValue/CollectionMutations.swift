extension RangeReplaceableCollection where Element: Equatable {
  /// Replaces the first element that equals `element`. Returns false if there is none.
  package mutating func replaceFirst(_ element: Element, with replacement: Element) -> Bool {
    guard let index = firstIndex(of: element) else { return false }
    replaceSubrange(index..<self.index(after: index), with: CollectionOfOne(replacement))
    return true
  }

  /// Removes all elements that equal `element`, or appends it if there is none.
  package mutating func togglePresence(of element: Element) {
    let count = count
    removeAll { $0 == element }
    if self.count == count { append(element) }
  }
}
