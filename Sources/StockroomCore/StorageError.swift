/// Why a storage operation failed.
///
/// Only after ``Code/outcomeUnknown`` may it have happened all the same. Of a batch, an engine without
/// ``EngineCapabilities/atomicBatches`` may have done a part.
///
/// Decide on ``code``; show ``description`` to a person: it names the place and the cause.
public struct StorageError: Error, Sendable {
  /// The kind of failure, the same for every engine.
  public var code: Code
  /// What failed and where, in a sentence.
  public var message: String
  /// The error that caused this one, if another layer reported it.
  public var underlying: (any Error)?

  /// An error with a code, a sentence for people, and the error behind it.
  public init(_ code: Code, _ message: String, underlying: (any Error)? = nil) {
    self.code = code
    self.message = message
    self.underlying = underlying
  }
}

extension StorageError {
  /// A kind of failure. Not an enumeration, so that engines elsewhere may add codes of their own.
  /// StockroomStore adds `encodingFailed` and `decodingFailed`.
  public struct Code: Hashable, Sendable {
    /// The name of the code.
    public let name: String

    /// A code of an engine's own.
    public init(_ name: String) { self.name = name }

    /// A key is empty or longer than ``CacheKey/maximumLength`` bytes (rule K1).
    public static let invalidKey = Code("invalidKey")
    /// A value is larger than the engine can hold (rule V2).
    public static let valueTooLarge = Code("valueTooLarge")
    /// What is stored is corrupted, or the engine or the layer that reads it cannot have written it (rule F2).
    public static let corrupted = Code("corrupted")
    /// The engine has been closed (rule O3), or a transaction is used after its body has returned (rule T4).
    public static let closed = Code("closed")
    /// Another engine or process has the place open and does not share it, or has held a lock for longer than the timeout
    /// (rules C2, C3 and O5).
    public static let locked = Code("locked")
    /// The place is on read-only media, the engine was opened with ``StorageAccess/readOnly``, or the server is a standby
    /// (rule F3).
    public static let readOnly = Code("readOnly")
    /// The operating system or the server does not allow it, the credentials are wrong, or a layer lacks the encryption key
    /// (rules O2, F3 and N5).
    public static let permissionDenied = Code("permissionDenied")
    /// There is no room left (rule F1).
    public static let diskFull = Code("diskFull")
    /// The engine cannot do this, or the place belongs to another program.
    public static let unsupported = Code("unsupported")
    /// A transaction was given up because others change the same entries, and nothing has happened (rule T4).
    public static let conflict = Code("conflict")
    /// A server cannot be reached, or does not answer in time, and nothing has happened (rule N1).
    public static let unavailable = Code("unavailable")
    /// A server was lost in the middle of a write, or did not answer in time, and nobody can find out whether the write has
    /// happened: the one error after which it may have (rule N2). Read again.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// Any other failure of the disk, the network or the library underneath.
    public static let io = Code("io")
  }
}

extension StorageError: CustomStringConvertible {
  /// The code, the message and the cause, in one line.
  public var description: String {
    guard let underlying else { return "\(code): \(message)" }
    // The cause belongs to the sentence, so that it does not end before it.
    let sentence = message.hasSuffix(".") ? message.dropLast() : message[...]
    return "\(code): \(sentence) (\(underlying))"
  }
}

extension StorageError.Code: CustomStringConvertible {
  /// The name of the code.
  public var description: String { name }
}
