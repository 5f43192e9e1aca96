import StockroomCore
import StockroomLayers

/// Keeps the calls that it records.
final class CallRecorder: StorageInstrument {
  private let state = MutexProtected<[StorageCall]>([])

  var calls: [StorageCall] { state.withLock { $0 } }

  func record(_ call: StorageCall) { state.withLock { $0.append(call) } }

  /// The calls since the last time.
  func take() -> [StorageCall] {
    state.withLock { calls in
      defer { calls = [] }
      return calls
    }
  }
}

/// What a call is about.
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
