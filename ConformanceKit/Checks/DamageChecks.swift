#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Damaged files: rule F2.

extension CheckDefinition {
  @CheckList static var damageChecks: [CheckDefinition] {
    for damage in Damage.allCases {
      Check(
        .f2, "damage.\(damage.name)",
        "a store with a file \(damage.what) throws corrupted when it is opened or read, or gives what is still there",
        needs: .persistent
      ) { context in
        let store = try await ClosedStore(in: context)
        for file in store.files { try await check(damage, of: file, in: store) }
      }
    }
    Check(
      .f2, "damage.anywhere",
      "wherever a file is damaged, a read gives the right value or throws corrupted",
      needs: .detectsCorruption
    ) { context in
      let store = try await ClosedStore(in: context)
      for file in store.files {
        for part in 0..<24 { try await checkFlippedBytes(at: part, of: 24, in: file, of: store) }
      }
    }
  }
}

private enum Damage: String, CaseIterable, Sendable {
  case truncatedFile, emptiedFile, zeroedHeader, replacedFile

  var name: String { rawValue }

  var what: String {
    switch self {
    case .truncatedFile: "cut to half its length"
    case .emptiedFile: "cut to no bytes at all"
    case .zeroedHeader: "whose first bytes are zero"
    case .replacedFile: "that is a text"
    }
  }

  func apply(to bytes: Data) -> Data {
    switch self {
    case .truncatedFile: bytes.prefix(bytes.count / 2)
    case .emptiedFile: Data()
    case .zeroedHeader: Data(count: min(512, bytes.count)) + bytes.dropFirst(512)
    case .replacedFile: data(String(repeating: "This is no database.\n", count: 1 + bytes.count / 40))
    }
  }

  /// What is not recognised at all may be taken for a file of another program.
  var codes: [StorageError.Code] {
    switch self {
    case .truncatedFile, .emptiedFile: [.corrupted]
    case .zeroedHeader, .replacedFile: [.corrupted, .unsupported]
    }
  }
}

private func check(_ damage: Damage, of file: String, in store: ClosedStore) async throws {
  let copy = try store.copy { directory in
    let path = directory.appending(path: file)
    try damage.apply(to: try Data(contentsOf: path)).write(to: path)
  }
  try await checkReads(of: store, at: copy, codes: damage.codes, "with \(file) \(damage.what)")
  try FileManager.default.removeItem(at: copy)
}

private func checkFlippedBytes(at part: Int, of parts: Int, in file: String, of store: ClosedStore)
  async throws
{
  let copy = try store.copy { directory in
    let path = directory.appending(path: file)
    var bytes = try Data(contentsOf: path)
    let start = bytes.count * part / parts
    for offset in start..<min(start + 3, bytes.count) { bytes[offset] ^= 0xA5 }
    try bytes.write(to: path)
  }
  try await checkReads(
    of: store, at: copy, codes: [.corrupted, .unsupported],
    "with bytes changed at \(part)/\(parts) of \(file)")
  try FileManager.default.removeItem(at: copy)
}

/// Opens the damaged store and reads everything. To throw is fine; what is given must not be made up, and may not
/// be nothing at all.
private func checkReads(
  of store: ClosedStore, at directory: URL, codes: [StorageError.Code], _ what: String
) async throws {
  func isReported(_ failure: CallFailure) throws -> Bool {
    if let error = failure.error as? StorageError, codes.contains(error.code) { return true }
    throw Violation("\(what), \(failure), which is not StorageError with code corrupted")
  }
  let engine: Subject
  do {
    engine = try await store.context.open(directory)
  } catch let failure as CallFailure {
    _ = try isReported(failure)
    return
  }
  var (found, reported) = (0, false)
  for entry in store.entries {
    do {
      let value = try await engine.read(key: entry.key)
      if value != nil { found += 1 }
      guard store.context.capabilities.contains(.detectsCorruption) else { continue }
      try expect(
        value == entry.data,
        "\(what), read(key:) of \(entry.key) gave \(describe(value as Any)), which is not what was written")
    } catch let failure as CallFailure {
      reported = try isReported(failure) || reported
    }
  }
  do {
    found += try await engine.readAllDataAndKeys().count
    found += try await engine.keyCount()
  } catch let failure as CallFailure {
    reported = try isReported(failure) || reported
  }
  try expect(found > 0 || reported, "\(what), the store was empty, and no call threw")
  // Closing may report the damage as well.
  try? await store.context.close(engine)
}
