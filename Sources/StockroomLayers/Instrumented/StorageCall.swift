public import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A call of an engine that has ended, for a ``StorageInstrument`` to record.
///
/// It contains sizes and numbers, but neither keys nor values.
public struct StorageCall: Sendable {
  /// The method that was called.
  public let operation: Operation
  /// The name of the engine: see ``StockroomCore/StorageEngine/instrumented(as:by:_:)``.
  public let engine: String
  /// How long the call took, including time spent waiting.
  public let duration: Duration
  /// How the call ended.
  public let outcome: Outcome
  /// The number of keys in the arguments, including repeated ones. For a transaction: of the keys that its body read, checked,
  /// wrote and removed.
  public let entriesRequested: Int
  /// The number of entries, or parts of them (values, keys, timestamps), that the call returned; 0 if it threw. For a transaction,
  /// even one that threw: of those that its body read.
  public let entriesReturned: Int
  /// The size in bytes of the values that the call returned. For a transaction, even one that threw: of those that its body read.
  public let bytesRead: Int
  /// The size in bytes of the values in the arguments of a write, whether or not it succeeded. For a transaction: of those that its
  /// body wrote.
  public let bytesWritten: Int

  /// Creates a call, for testing instruments.
  public init(
    _ operation: Operation, engine: String, duration: Duration = .zero,
    outcome: Outcome = .success, entriesRequested: Int = 0, entriesReturned: Int = 0, bytesRead: Int = 0,
    bytesWritten: Int = 0
  ) {
    self.operation = operation
    self.engine = engine
    self.duration = duration
    self.outcome = outcome
    self.entriesRequested = entriesRequested
    self.entriesReturned = entriesReturned
    self.bytesRead = bytesRead
    self.bytesWritten = bytesWritten
  }
}

extension StorageCall {
  /// A requirement of `StorageEngine`.
  public enum Operation: String, Sendable, CaseIterable {
    /// `write(_:key:)`
    case write
    /// `write(_:)`
    case writeMany
    /// `read(key:)`
    case read
    /// `read(keys:)`
    case readMany
    /// `readDataAndKeys(keys:)`
    case readDataAndKeys
    /// `readAllData()`
    case readAllData
    /// `readAllDataAndKeys()`
    case readAllDataAndKeys
    /// `remove(key:)`
    case remove
    /// `remove(keys:)`
    case removeMany
    /// `removeAllData()`
    case removeAllData
    /// `keyExists(_:)`
    case keyExists
    /// `keysExist(_:)`
    case keysExist
    /// `keyCount()`
    case keyCount
    /// `allKeys()`
    case allKeys
    /// `createdAt(key:)`
    case createdAt
    /// `updatedAt(key:)`
    case updatedAt
    /// `readAllEntries()`
    case readAllEntries
    /// `readEntries(keys:)`
    case readEntries
    /// `writeEntries(_:)`
    case writeEntries
    /// `apply(_:)`
    case apply
    /// `scan(_:limit:)`
    case scan
    /// `withTransaction(_:)`, and methods that are built on it, such as `increment(_:by:)`
    case withTransaction
    /// `changes()`: the subscription, not what the stream yields
    case changes
    /// `verify()`
    case verify
    /// `close()`
    case close
  }

  /// How a call ended.
  public enum Outcome: Sendable {
    /// It returned.
    case success
    /// It threw a `StorageError` with this code.
    case storageError(StorageError.Code)
    /// It threw `CancellationError`.
    case cancelled
    /// It threw another error, of this type: from the body of a transaction, or from an engine of your own.
    case otherError(any Error.Type)

    init(_ error: any Error) {
      self =
        switch error {
        case let error as StorageError: .storageError(error.code)
        case is CancellationError: .cancelled
        default: .otherError(type(of: error))
        }
    }

    /// The name of the code, `cancelled`, or the name of the error's type; nil if the call returned.
    public var errorName: String? {
      switch self {
      case .success: nil
      case .storageError(let code): code.name
      case .cancelled: "cancelled"
      case .otherError(let type): String(describing: type)
      }
    }
  }
}

extension StorageCall: CustomStringConvertible {
  /// All properties of the call, in one line.
  public var description: String {
    "\(engine) \(operation): \(outcome.errorName ?? "success"), \(duration), \(entriesRequested) requested, "
      + "\(entriesReturned) returned, \(bytesRead) bytes read, \(bytesWritten) bytes written"
  }
}

/// The counts of a call.
struct CallCounts: Sendable {
  var entriesRequested = 0
  var entriesReturned = 0
  var bytesRead = 0
  var bytesWritten = 0
}

extension CallCounts {
  /// Sets the counts of the entries that were returned. O(N).
  mutating func add<Entry>(_ entries: [Entry], _ value: (Entry) -> Data) {
    entriesReturned = entries.count
    bytesRead = entries.byteCount(of: value)
  }
}

extension [StorageOperation] {
  /// The counts of a batch. O(N).
  var counts: CallCounts {
    var counts = CallCounts()
    for operation in self {
      switch operation {
      case .write(let data, _):
        counts.entriesRequested += 1
        counts.bytesWritten += data.count
      case .remove: counts.entriesRequested += 1
      case .removeAll: break
      }
    }
    return counts
  }
}

extension Duration {
  /// Whole nanoseconds, up to 292 years.
  var nanoseconds: Int64 { Int64(clamping: attoseconds / 1_000_000_000) }
}
