/// What an engine promises beyond the rules that hold for every engine.
///
/// The conformance kit checks the capabilities that an engine claims, and does not expect the others.
public struct EngineCapabilities: OptionSet, Sendable, Hashable {
  /// The bits of the set.
  public let rawValue: UInt

  /// A set with these bits.
  public init(rawValue: UInt) { self.rawValue = rawValue }

  /// Acknowledged writes are still stored after the engine is reopened (rule W6).
  public static let persistent = EngineCapabilities(rawValue: 1 << 0)
  /// A batch takes effect as a whole or not at all: for readers, after errors and after crashes (rule W4).
  public static let atomicBatches = EngineCapabilities(rawValue: 1 << 1)
  /// A read of many entries returns a snapshot, the state at one point in time (rule R3). Together with ``atomicBatches``
  /// this includes ``StorageEngine/keysExist(_:)``, whose default checks key by key and so may see half a batch.
  public static let snapshotReads = EngineCapabilities(rawValue: 1 << 2)
  /// A scan visits keys in byte order without loading more than it returns (rule R5).
  public static let orderedScans = EngineCapabilities(rawValue: 1 << 3)
  /// An acknowledged write survives a crash of the operating system and a power failure (rule W6). An engine that is opened with
  /// ``Durability/process`` does not claim it.
  public static let durableWrites = EngineCapabilities(rawValue: 1 << 4)
  /// Several processes may have the same place open at once (rule C3).
  public static let multiProcess = EngineCapabilities(rawValue: 1 << 5)
  /// Corruption anywhere is reported as ``StorageError/Code/corrupted``, never returned as data (rule F2).
  public static let detectsCorruption = EngineCapabilities(rawValue: 1 << 6)
  /// ``StorageEngine/withTransaction(_:)`` runs transactions that are strictly serializable (rules T1 to T5).
  public static let transactions = EngineCapabilities(rawValue: 1 << 7)
  /// ``StorageEngine/changes()`` reports every change, including those of other engines and processes (rules X1 to X5).
  public static let changeFeed = EngineCapabilities(rawValue: 1 << 8)
  /// The engine uses a server, which may be unreachable or slow, or become unreachable during a call (rules N1 to N6).
  public static let networked = EngineCapabilities(rawValue: 1 << 9)
  /// ``StorageEngine/writeEntries(_:)`` stores the timestamps that it is given (rules W2, R6), and so does
  /// ``StorageTransaction/writeEntry(_:)`` if the engine has ``transactions``. Without it, entries that are copied to this
  /// engine get the time of the copy.
  public static let preservesTimestamps = EngineCapabilities(rawValue: 1 << 10)
}

extension EngineCapabilities: CustomStringConvertible {
  /// Every capability by its name, in the order of declaration.
  public static let named: [(name: String, capability: EngineCapabilities)] = [
    ("persistent", .persistent), ("atomicBatches", .atomicBatches), ("snapshotReads", .snapshotReads),
    ("orderedScans", .orderedScans), ("durableWrites", .durableWrites), ("multiProcess", .multiProcess),
    ("detectsCorruption", .detectsCorruption), ("transactions", .transactions),
    ("changeFeed", .changeFeed), ("networked", .networked),
    ("preservesTimestamps", .preservesTimestamps),
  ]

  /// The names of the capabilities in the set, in brackets.
  public var description: String {
    "[" + Self.named.filter { contains($0.capability) }.map(\.name).joined(separator: ", ") + "]"
  }
}
