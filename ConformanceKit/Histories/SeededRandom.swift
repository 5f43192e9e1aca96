/// Random choices that are the same for the same seed, on every system and with every compiler.
///
/// The numbers are those of SplitMix64 (Steele, Lea and Flood, 2014).
struct SeededRandom: Sendable {
  private static let step: UInt64 = 0x9E37_79B9_7F4A_7C15

  private var state: UInt64

  init(seed: UInt64) {
    // Scrambled, as the sequences of a seed and of the next one would otherwise be the same but for one step.
    state = Self.scramble(seed ^ 0x5DEE_CE66_D1CE_4E5B)
  }

  /// The seed that comes after this one. All of the 2^64 seeds come before one comes again.
  static func seed(after seed: UInt64) -> UInt64 { seed &+ step }

  /// A number from zero up to, and without, the bound; zero if there is none.
  mutating func below(_ bound: Int) -> Int {
    guard bound > 1 else { return 0 }
    return Int(truncatingIfNeeded: next().multipliedFullWidth(by: UInt64(bound)).high)
  }

  /// Yes, as often as once in that many times.
  mutating func once(in times: Int) -> Bool { below(times) == 0 }

  /// One of the elements; nil if there is none.
  mutating func pick<Element>(_ elements: [Element]) -> Element? {
    elements.isEmpty ? nil : elements[below(elements.count)]
  }

  /// One of the choices, each as often as its weight says.
  mutating func pick<Choice>(_ choices: KeyValuePairs<Choice, Int>, otherwise: Choice) -> Choice {
    var number = below(choices.reduce(0) { $0 + $1.value })
    for (choice, weight) in choices {
      if number < weight { return choice }
      number -= weight
    }
    return otherwise
  }

  private mutating func next() -> UInt64 {
    state &+= Self.step
    return Self.scramble(state)
  }

  private static func scramble(_ number: UInt64) -> UInt64 {
    var number = number
    number = (number ^ (number >> 30)) &* 0xBF58_476D_1CE4_E5B9
    number = (number ^ (number >> 27)) &* 0x94D0_49BB_1331_11EB
    return number ^ (number >> 31)
  }
}
