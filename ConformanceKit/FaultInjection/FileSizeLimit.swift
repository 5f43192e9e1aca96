import Foundation
import StockroomCore

/// A limit on the size of files, whose effect resembles that of a full disk. Requires a separate process.
struct FileSizeLimit: CheckTask {
  let place: URL

  private static let limit = 400 << 10

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let engine = EngineUnderTest(try await makeEngine(place))
    let kept = entries(keys(20))
    try await engine.write(kept)
    try await engine.write(noise(30_000), key: key("overwritten"))
    try System.limitFileSize(to: Self.limit)
    defer { System.unlimitFileSize() }

    var written = kept + [(key("overwritten"), noise(30_000))]
    var refused: CacheKey?
    for (number, key) in keys(40, prefix: "filling-").enumerated() where refused == nil {
      try note("write(_:key:) with a limit of \(Self.limit) bytes to a file")
      // The last value alone exceeds the limit.
      let value = noise(number < 39 ? 16_384 : 2 * Self.limit, seed: UInt64(number))
      if try await write(value, key, to: engine) { written.append((key, value)) } else { refused = key }
    }
    guard let refused else {
      throw Skip(reason: "The engine is not affected by a limit on the size of files.")
    }
    try note("an overwrite with a limit of \(Self.limit) bytes to a file")
    if try await write(noise(Self.limit, seed: 5), key("overwritten"), to: engine) {
      written[kept.count].data = noise(Self.limit, seed: 5)
    }
    try await expectStored(written, absent: [refused], in: engine)

    System.unlimitFileSize()
    try note("writing after the limit on the size of files was lifted")
    try await engine.write(noise(50_000), key: refused)
    written.append((refused, noise(50_000)))
    try await expectStored(written, in: engine)
    try await engine.close()
    engine.release()
    let reopened = EngineUnderTest(try await makeEngine(place))
    try await expectStored(written, in: reopened)
    try await reopened.close()
  }

  /// Whether the entry was written. An engine may treat EFBIG as a full disk, as a value that is too large, or as an
  /// I/O error.
  private func write(_ value: Data, _ key: CacheKey, to engine: EngineUnderTest) async throws -> Bool {
    do {
      try await engine.write(value, key: key)
      return true
    } catch let failure as CallFailure {
      if let error = failure.error as? StorageError, [.diskFull, .valueTooLarge, .io].contains(error.code) {
        return false
      }
      throw Violation("with a limit to the size of files, \(failure)")
    }
  }
}
