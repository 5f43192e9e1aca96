import StockroomCore
import StockroomLayers

/// Stores the calls that it records.
final class CallRecorder: StorageInstrument {
  private let state = MutexProtected<[StorageCall]>([])

  var calls: [StorageCall] { state.withLock { $0 } }

  func record(_ call: StorageCall) { state.withLock { $0.append(call) } }

  /// The calls since the last `take()`.
  func take() -> [StorageCall] {
    state.withLock { calls in
      defer { calls = [] }
      return calls
    }
  }
}

/// The counts and sizes of a call.
struct Counts: Equatable {
  var requested = 0
  var returned = 0
  var read = 0
  var written = 0
}

extension Counts {
  init(_ call: StorageCall) {
    self.init(
      requested: call.entriesRequested, returned: call.entriesReturned, read: call.bytesRead,
      written: call.bytesWritten)
  }
}
