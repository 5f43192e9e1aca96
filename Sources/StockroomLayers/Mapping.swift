import StockroomCore

/// Returns the results of `transform` for all elements. Yields to other tasks in between (rule C5).
func mapping<Element, Mapped>(
  _ elements: [Element], _ transform: (Element) throws -> Mapped
) async throws -> [Mapped] {
  var mapped: [Mapped] = []
  mapped.reserveCapacity(elements.count)
  var timer = YieldTimer()
  // Reading the clock costs as much as decoding some hundred bytes.
  for start in stride(from: 0, to: elements.count, by: 16) {
    try await timer.yieldIfDue()
    for element in elements[start..<min(start + 16, elements.count)] { mapped.append(try transform(element)) }
  }
  return mapped
}

/// Returns the results of `transform` for all elements. Yields to other tasks in between (rule C5).
func mapping<Element, Mapped>(
  _ elements: [Element], _ transform: (Element) async throws -> Mapped
) async throws -> [Mapped] {
  var mapped: [Mapped] = []
  mapped.reserveCapacity(elements.count)
  var timer = YieldTimer()
  for (index, element) in elements.enumerated() {
    if index.isMultiple(of: 16) { try await timer.yieldIfDue() }
    mapped.append(try await transform(element))
  }
  return mapped
}
