#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How a place changes under an open engine.
enum PlaceChange: String, CaseIterable, Sendable {
  case deleted, moved, replaced
  // The directory stays, and its files are removed.
  case emptied
  case filled = "filled-by-another"

  var participle: String { self == .filled ? "filled with the files of another" : rawValue }

  /// Whether the previous contents are somewhere else afterwards.
  var keepsOldPlace: Bool { self == .moved || self == .replaced }

  /// Whether the contents of another place are there afterwards.
  var bringsEntries: Bool { self == .replaced || self == .filled }

  /// Changes the place.
  ///
  /// - Parameters:
  ///   - replacement: The other place, on which no engine is open. Only used if its contents are brought.
  ///   - aside: Where the place is moved to, if it is kept.
  func perform(on place: URL, replacement: URL, aside: URL) throws {
    let files = FileManager.default
    switch self {
    case .deleted: try files.removeItem(at: place)
    case .moved, .replaced: try files.moveItem(at: place, to: aside)
    case .emptied, .filled:
      for name in try files.contentsOfDirectory(atPath: place.systemPath) {
        try files.removeItem(at: place.appending(path: name))
      }
    }
    if self == .replaced { try files.moveItem(at: replacement, to: place) }
    if self == .filled {
      for name in try files.contentsOfDirectory(atPath: replacement.systemPath) {
        try files.copyItem(at: replacement.appending(path: name), to: place.appending(path: name))
      }
    }
  }
}
