/// A first-in, first-out queue. Adding and removing an element are amortized O(1).
struct Queue<Element> {
  private var added: [Element] = []
  /// In reverse order: the first element is the last.
  private var next: [Element] = []

  var isEmpty: Bool { added.isEmpty && next.isEmpty }

  var first: Element? { next.last ?? added.first }

  mutating func append(_ element: Element) { added.append(element) }

  mutating func popFirst() -> Element? {
    if next.isEmpty {
      next = added.reversed()
      added = []
    }
    return next.popLast()
  }
}

extension Queue: Sendable where Element: Sendable {}
