import ConformanceKit
import Foundation
import StockroomCore
import Testing

/// A broken engine that examples hardly show, and how long its shortest history is.
struct HistoryPiece: Sendable, CustomTestStringConvertible {
  let piece: MuseumPiece
  /// The number of calls that are enough.
  let calls: Int
  /// More than what fits into a test suite: some sequences are rare.
  var effort: ConformanceEffort {
    var effort = ConformanceEffort()
    effort.operations = 20_000
    return effort
  }

  var testDescription: String { piece.testDescription }

  init(_ calls: Int, _ piece: MuseumPiece) { (self.calls, self.piece) = (calls, piece) }

  static let all: [HistoryPiece] = [
    .init(2, .init(.k1, "counts characters of keys") { CountsCharacters(base: $0) }),
    .init(
      2,
      .init(.k2, "compares 400 bytes of keys", also: [.k3]) { base in
        let keys = FirstKeys()
        return RenamingEngine(base: base) { keys.first(like: $0) }
      }),
    .init(
      2,
      .init(.k3, "keeps 400 bytes of a key", also: [.k2]) { base in
        RenamingEngine(base: base) { String(decoding: $0.utf8.prefix(400), as: UTF8.self) }
      }),
    .init(2, .init(.k3, "lists keys as often as a batch has them") { ListsRepeats(base: $0) }),
    .init(2, .init(.v1, "removes empty values of batches") { RemovesEmptyValues(base: $0) }),
    .init(
      2, .init(.v2, "keeps 1 MiB of a value") { ChangingEngine(base: $0, onTheWayIn: { $0.prefix(1 << 20) }) }
    ),
    .init(2, .init(.v3, "gives slices of large values") { GivesSlicesOfLargeValues(base: $0) }),

    .init(4, .init(.w2, "skips equal values") { SkipsEqualValues(base: $0) }),
    .init(4, .init(.w2, "freezes times in batches") { FreezesTimesInBatches(base: $0) }),
    .init(2, .init(.w3, "writes the longest of several entries") { LongestEntryWins(base: $0) }),
    .init(1, .init(.w3, "throws for empty batches") { RefusesEmptyBatches(base: $0) }),
    .init(3, .init(.w4, "removes up to the invalid key") { RemovesUpToTheInvalidKey(base: $0) }),
    .init(
      3,
      .init(.w5, "forgets overwrites after removals in a batch") { ForgetsOverwritesAfterRemovals(base: $0) }),
    .init(2, .init(.w5, "spares the batch that removes everything") { SparesTheBatch(base: $0) }),
    .init(
      3,
      .init(persistent: .w6, "forgets empty values when opened") { base, _ in ForgetsEmptyValues(base: base) }
    ),
    .init(
      4,
      .init(persistent: .w6, "renews times when opened", also: [.w2]) { base, _ in
        RenewsTimesWhenOpened(base: base)
      }),

    .init(2, .init(.r2, "answers neighbours once") { AnswersNeighboursOnce(base: $0) }),
    .init(3, .init(.r5, "counts the bound of a scan") { CountsTheBound(base: $0) }),
    .init(2, .init(.r5, "skips an entry after the bound within a prefix") { SkipsTwice(base: $0) }),
    .init(3, .init(.r6, "skips removals before writes", also: [.w2]) { SkipsRemovalsBeforeWrites(base: $0) }),
    .init(
      4, .init(persistent: .r6, "forgets the order when opened") { base, _ in ForgetsTheOrder(base: base) }),

    .init(3, .init(.d1, "removes all of many or none") { RemovesAllOrNone(base: $0) }),
    .init(3, .init(.d1, "keeps empty entries") { KeepsEmptyEntries(base: $0) }),
    .init(4, .init(.d2, "reads what was removed") { ReadsWhatWasRemoved(base: $0) }),
    .init(2, .init(.l2, "counts repeats") { CountsRepeats(base: $0) }),
  ]
}

extension MuseumPiece {
  /// Engines that go wrong only in certain sequences of calls.
  static let ofHistories: [MuseumPiece] = HistoryPiece.all.map(\.piece)
}
