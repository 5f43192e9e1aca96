// The Swift code of MeasuringCalls.md, which ReadmeTests compares with the page.

import StockroomCore
import StockroomLayers
import StockroomSQLite
import Synchronization

func openMeasured() throws -> some StorageEngine {
  try SQLiteStorageEngine(directory: .documents(appendingPath: "Songs"))
    .instrumented(as: "songs", by: SlowCallLog(over: .milliseconds(100)) { print($0) })
}

#if Instrumentation
  func openTraced() throws -> some StorageEngine {
    try SQLiteStorageEngine(directory: .documents(appendingPath: "Songs"))
      .instrumented(as: "songs", by: MetricsInstrument(), TracingInstrument(system: "sqlite"))
  }
#endif

final class ReadCounter: StorageInstrument {
  private let reads = Mutex(0)
  func record(_ call: StorageCall) { reads.withLock { $0 += call.entriesReturned } }
}
