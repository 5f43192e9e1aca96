#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// The key with exactly this text.
func key(_ text: String) -> CacheKey { CacheKey(verbatim: text) }

/// A key of 300 bytes that begins with the text. File names cannot be that long, so engines that store entries in files
/// named like keys need another way to store it.
func longKey(_ text: String) -> CacheKey {
  key(text + String(repeating: "k", count: max(0, 300 - text.utf8.count)))
}

/// Keys `prefix00000`, `prefix00001`, … whose order of bytes is that of the numbers.
func keys(_ count: Int, prefix: String = "key-") -> [CacheKey] {
  (0..<count).map { key(SampleText.numbered(prefix, $0)) }
}

/// The text as a value.
func data(_ text: String) -> Data { SampleText.data(text) }

/// A value that contains its key and version as plain text, so that an engine that corrupts other values does not
/// appear to confuse keys.
func value(for key: CacheKey, version: Int = 1) -> Data {
  SampleText.value(of: key.value, version: version)
}

func entries(_ keys: [CacheKey], version: Int = 1) -> [(key: CacheKey, data: Data)] {
  keys.map { ($0, value(for: $0, version: version)) }
}

/// Bytes that neither compression nor deduplication can reduce.
func incompressible(_ count: Int, seed: UInt64) -> Data {
  var random = SeededRandom(seed: seed)
  return random.bytes(count)
}

/// Bytes without repetitions: a block of noise, repeated, each time with its number.
func noise(_ count: Int, seed: UInt64 = 1) -> Data {
  let blockSize = min(count, 16_384)
  var random = SeededRandom(seed: seed)
  var block = random.bytes(blockSize)
  var data = Data(capacity: count)
  var number = 0
  while data.count < count {
    if blockSize > 4 { for byte in 0..<4 { block[byte] = UInt8(truncatingIfNeeded: number >> (8 * byte)) } }
    data.append(contentsOf: block.prefix(count - data.count))
    number += 1
  }
  return data
}

extension Sequence<CacheKey> {
  /// In ascending order of bytes.
  func inByteOrder() -> [CacheKey] { sorted() }
}
