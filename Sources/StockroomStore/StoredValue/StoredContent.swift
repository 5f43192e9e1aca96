import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The stored content of a key.
enum StoredContent: Sendable {
  case absent
  case bytes(Data)
  /// The content could not be read.
  case unreadable(StorageError)

  func isSame(as other: StoredContent) -> Bool {
    switch (self, other) {
    case (.absent, .absent): true
    case (.bytes(let bytes), .bytes(let otherBytes)): bytes == otherBytes
    case (.unreadable(let error), .unreadable(let otherError)): error.description == otherError.description
    default: false
    }
  }
}
