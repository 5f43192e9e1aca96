/// Why a storage operation failed.
///
/// The operation has not taken effect, with three exceptions. After ``Code/outcomeUnknown`` it may have. After ``Code/io`` or
/// ``Code/corrupted`` it may have if the failure came after the commit, such as a sync that failed or a place that was replaced
/// in the meantime. An engine without ``EngineCapabilities/atomicBatches`` may have performed a part of a batch.
///
/// Use ``code`` to handle the error, and show ``description`` to people: it names the place and the cause.
public struct StorageError: Error, Sendable {
  /// The kind of failure, the same for every engine.
  public var code: Code
  /// One sentence that says what failed and where.
  public var message: String
  /// The error that caused this one, if there is one.
  public var underlying: (any Error)?

  /// Creates an error with a code, a message for people, and the error that caused it.
  public init(_ code: Code, _ message: String, underlying: (any Error)? = nil) {
    self.code = code
    self.message = message
    self.underlying = underlying
  }
}

extension StorageError {
  /// A kind of failure. A structure rather than an enumeration, so that other modules can add their own codes. StockroomStore
  /// adds `encodingFailed` and `decodingFailed`, StockroomImport adds `targetNotEmpty`.
  public struct Code: Hashable, Sendable {
    /// The name of the code.
    public let name: String

    /// Creates a code. Engines use it to define their own codes.
    public init(_ name: String) { self.name = name }

    /// A key is empty or longer than ``CacheKey/maximumLength`` bytes (rule K1).
    public static let invalidKey = Code("invalidKey")
    /// A value is larger than the engine can store (rule V2).
    public static let valueTooLarge = Code("valueTooLarge")
    /// The stored data is corrupted, or cannot have been written by the engine or layer that reads it (rule F2).
    public static let corrupted = Code("corrupted")
    /// The engine has been closed (rule O3), or a transaction was used after its body returned (rule T4).
    public static let closed = Code("closed")
    /// Another engine or process has the place open exclusively, or has held a lock for longer than the timeout (rules C2,
    /// C3 and O5).
    public static let locked = Code("locked")
    /// The place is on read-only media, the engine was opened with ``StorageAccess/readOnly``, or the server is a standby
    /// (rule F3).
    public static let readOnly = Code("readOnly")
    /// The operating system or the server denies access, the credentials are wrong, or a layer lacks the encryption key
    /// (rules O2, F3 and N5).
    public static let permissionDenied = Code("permissionDenied")
    /// There is no space left on the disk (rule F1).
    public static let diskFull = Code("diskFull")
    /// The engine does not support the operation, or the place belongs to another program.
    public static let unsupported = Code("unsupported")
    /// The transaction was abandoned, with nothing changed, because other callers change the same entries (rule T4).
    public static let conflict = Code("conflict")
    /// The server cannot be reached or does not answer in time. Nothing has changed (rule N1).
    public static let unavailable = Code("unavailable")
    /// The connection was lost during a write, or the server did not answer in time, and the engine cannot find out whether
    /// the write took effect (rule N2). Read again.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// Any other failure of the disk, the network or the underlying library.
    public static let io = Code("io")
  }
}

extension StorageError: CustomStringConvertible {
  /// The code, the message and the cause, in one line.
  public var description: String {
    guard let underlying else { return "\(code): \(message)" }
    // The cause in parentheses is a part of the sentence, so the sentence must not end before it.
    let sentence = message.hasSuffix(".") ? message.dropLast() : message[...]
    return "\(code): \(sentence) (\(underlying))"
  }
}

extension StorageError.Code: CustomStringConvertible {
  /// The name of the code.
  public var description: String { name }
}
