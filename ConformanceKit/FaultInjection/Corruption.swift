import Foundation
import StockroomCore
import StockroomKitSupport

/// One corruption of one file of a closed store.
struct Corruption: Sendable, CustomStringConvertible {
  enum Kind: Sendable {
    case bitFlipped(at: Int, bit: Int)
    case byteChanged(at: Int, by: UInt8)
    case bytesChanged(at: Int)
    case zeroed(at: Int, count: Int)
    case pagesSwapped(Int, Int)
    case cut(to: Int)
    case extended(by: Int, noise: Bool)
    case replaced(by: Data, name: String)
    case olderCopy
    case removed
  }

  let file: String
  let kind: Kind

  func apply(in directory: URL, olderFiles: [String: Data]) throws {
    let path = directory.appending(path: file)
    if case .removed = kind { return try FileManager.default.removeItem(at: path) }
    try changed(try Data(contentsOf: path), older: olderFiles[file]).write(to: path)
  }

  private func changed(_ original: Data, older: Data?) -> Data {
    var bytes = original
    func range(_ start: Int, _ count: Int) -> Range<Int> {
      min(start, bytes.count)..<min(start + count, bytes.count)
    }
    switch kind {
    case .bitFlipped(let offset, let bit): for index in range(offset, 1) { bytes[index] ^= 1 << UInt8(bit) }
    case .byteChanged(let offset, let mask): for index in range(offset, 1) { bytes[index] ^= mask }
    case .bytesChanged(let offset): for index in range(offset, 3) { bytes[index] ^= 0xA5 }
    case .zeroed(let offset, let count): for index in range(offset, count) { bytes[index] = 0 }
    case .pagesSwapped(let one, let other):
      let (first, second) = (range(one * Self.page, Self.page), range(other * Self.page, Self.page))
      guard first.count == Self.page, second.count == Self.page, !first.overlaps(second) else { return bytes }
      let kept = Data(bytes[first])
      bytes.replaceSubrange(first, with: Data(bytes[second]))
      bytes.replaceSubrange(second, with: kept)
    case .cut(let length): bytes = bytes.prefix(length)
    case .extended(let count, let isNoise): bytes += isNoise ? noise(count, seed: 31) : Data(count: count)
    case .replaced(let other, _): bytes = other
    case .olderCopy: bytes = older ?? bytes
    case .removed: break
    }
    return bytes
  }

  static let page = 4_096

  var description: String {
    switch kind {
    case .bitFlipped(let offset, let bit): "with bit \(bit) of byte \(offset) of \(file) flipped"
    case .byteChanged(let offset, let mask): "with byte \(offset) of \(file) changed by xor \(mask)"
    case .bytesChanged(let offset): "with 3 bytes of \(file) from byte \(offset) on changed by xor 165"
    case .zeroed(let offset, let count): "with \(count) bytes of \(file) from byte \(offset) on zeroed"
    case .pagesSwapped(let one, let other): "with the pages \(one) and \(other) of \(file) swapped"
    case .cut(let length): "with \(file) cut to \(length) bytes"
    case .extended(let count, let isNoise):
      "with \(count) bytes of \(isNoise ? "noise" : "zeros") after \(file)"
    case .replaced(_, let name): "with \(file) replaced by \(name)"
    case .olderCopy: "with \(file) replaced by an older copy of itself"
    case .removed: "with \(file) removed"
    }
  }

  static let text = Data(String(repeating: "This is no database.\n", count: 40).utf8)
}

// MARK: - Expectations

extension Corruption {
  /// The names of the allowed error codes. An engine may mistake a file that it does not recognize for one of another
  /// program.
  var codes: [String] {
    switch kind {
    case .cut: ["corrupted"]
    // Nothing is corrupted, but a file is missing, so a system call fails.
    case .removed: ["corrupted", "unsupported", "io"]
    default: ["corrupted", "unsupported"]
    }
  }

  /// Whether entries may have earlier values: an old version of a file need not show that there is a newer one.
  var mayBeStale: Bool {
    switch kind {
    case .olderCopy, .replaced: true
    default: false
    }
  }

  /// Whether the end of the file is missing. An engine that was closed can detect that if it syncs acknowledged writes.
  var isCut: Bool { if case .cut = kind { true } else { false } }

  /// Whether the store may be empty, if this file held the entries.
  var mayEmpty: Bool { if case .removed = kind { true } else { false } }
}

// MARK: - Random corruptions

extension Corruption {
  /// One of infinitely many random corruptions of the store. It depends on the number, the seed and the files alone.
  init(number: Int, seed: UInt64, store: ClosedStore, sizes: [String: Int]) {
    var random = SeededRandom(seed: seed, number: number)
    // Every other corruption takes the next file, so that small files are included. The others choose files in
    // proportion to their sizes.
    let file: String
    if number.isMultiple(of: 2) {
      file = store.files[number / 2 % store.files.count]
    } else {
      var place = random.next(upTo: max(1, sizes.values.reduce(0, +)))
      file =
        store.files.first { name in
          place -= sizes[name] ?? 0
          return place < 0
        } ?? store.files[0]
    }
    self.file = file
    kind = Self.kind(of: file, in: store, size: sizes[file] ?? 0, &random)
  }

  private static func kind(
    of file: String, in store: ClosedStore, size: Int, _ random: inout SeededRandom
  ) -> Kind {
    let place = random.next(upTo: max(1, size))
    // The part of a file where formats have their headers.
    let early = random.next(upTo: max(1, min(size, 128)))
    switch random.next(upTo: 20) {
    case 0...3: return .bitFlipped(at: place, bit: random.next(upTo: 8))
    case 4, 5: return .bitFlipped(at: early, bit: random.next(upTo: 8))
    case 6: return .byteChanged(at: place, by: UInt8(1 + random.next(upTo: 255)))
    case 7: return .byteChanged(at: early, by: UInt8(1 + random.next(upTo: 255)))
    case 8: return .zeroed(at: place & ~511, count: 512)
    case 9, 10: return .zeroed(at: place & ~(page - 1), count: page)
    case 11, 12: return .cut(to: random.next(upTo: max(1, size)))
    case 13: return .extended(by: 1 + random.next(upTo: 3 * page), noise: random.next(upTo: 2) == 0)
    case 14: return .zeroed(at: 0, count: size)
    case 15, 16:
      let pages = size / page
      if pages < 2 { return .byteChanged(at: place, by: 0xFF) }
      let first = random.next(upTo: pages)
      return .pagesSwapped(first, (first + 1 + random.next(upTo: pages - 1)) % pages)
    case 17: return store.olderFiles[file] == nil ? .bitFlipped(at: place, bit: 7) : .olderCopy
    case 18: return .removed
    default:
      let other = store.files[random.next(upTo: store.files.count)]
      if other == file { return .replaced(by: text, name: "a text") }
      let bytes = store.olderFiles[other] ?? noise(size, seed: 3)
      return .replaced(by: bytes, name: store.olderFiles[other] == nil ? "noise" : "what \(other) was")
    }
  }
}
