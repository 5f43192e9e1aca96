import ConformanceKit
import Foundation
import StockroomCore

/// The worker for the tests' engines with faults that need a separate process.
@main enum FaultyEngineWorker {
  static func main() async throws {
    let arguments = CommandLine.arguments.dropFirst()
    if arguments.contains("environmentFault") {
      let fault = arguments.lazy.compactMap(EnvironmentFaultEngine.Fault.init).first
      return try await ConformanceWorker.serve { try EnvironmentFaultEngine(directory: $0, fault: fault) }
    }
    if arguments.contains("lifeFault") {
      let fault = arguments.lazy.compactMap(LifeFaultEngine.Fault.init).first
      return try await ConformanceWorker.serve { try LifeFaultEngine(directory: $0, fault: fault) }
    }
    if arguments.contains("powerLossFault") {
      let fault = arguments.lazy.compactMap(PowerLossFaultEngine.Fault.init).first
      let keepsLog = arguments.contains("log")
      return try await ConformanceWorker.serve {
        try PowerLossFaultEngine(
          directory: $0, keepsLog: keepsLog, isDurable: !arguments.contains("fast"), fault: fault)
      }
    }
    if arguments.contains("systemFault") {
      let fault = arguments.lazy.compactMap(SystemFaultEngine.Fault.init).first
      return try await ConformanceWorker.serve {
        try SystemFaultEngine(directory: $0, keepsLog: !arguments.contains("copy"), fault: fault)
      }
    }
    if arguments.contains("groupFault") {
      let fault = arguments.lazy.compactMap(GroupFaultEngine.Fault.init).first
      return try await ConformanceWorker.serve { try GroupFaultEngine(directory: $0, fault: fault) }
    }
    if arguments.contains("changeFault") {
      let fault = arguments.lazy.compactMap(ChangeFaultEngine.Fault.init).first
      return try await ConformanceWorker.serve { try ChangeFaultEngine(directory: $0, fault: fault) }
    }
    if arguments.contains("sharedPlaceFault") {
      let fault = arguments.lazy.compactMap(SharedPlaceFaultEngine.Fault.init).first
      return try await ConformanceWorker.serve {
        try SharedPlaceFaultEngine(directory: $0, isShared: arguments.contains("shared"), fault: fault)
      }
    }
    if arguments.contains("reference") {
      let readsEverything = arguments.contains("afterCrashes")
      return try await ConformanceWorker.serve {
        try ReferenceEngine(directory: $0, fault: readsEverything ? .readsEverythingAfterCrashes : nil)
      }
    }
    let isShared = arguments.contains("shared")
    let fault = arguments.lazy.compactMap(CrashFaultEngine.Fault.init).first
    try await ConformanceWorker.serve {
      try CrashFaultEngine(directory: $0, isShared: isShared, fault: fault)
    }
  }
}
