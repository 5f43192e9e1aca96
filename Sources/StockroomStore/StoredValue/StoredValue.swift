import Foundation
import Observation
import StockroomCore

/// A single value that is kept in `UserDefaults`.
///
/// ```swift
/// @StoredValue(key: "openLinksInSafari") var openLinksInSafari = true
/// @StoredValue(key: "lastOpened") var lastOpened: Date?
///
/// openLinksInSafari                        // true, until something else is stored
/// try $openLinksInSafari.toggle()
/// try $lastOpened.set(.now)
/// try $openLinksInSafari.reset()           // true again
/// ```
///
/// The value is read through the property and changed through its projection, the `$` form, which is this
/// class. It is meant for what a person sets and a program looks up: a flag, a choice, a list of identifiers.
/// What is large, or grows with use, is better kept in a ``Store``, or in an ``AsyncStoredValue``.
///
/// ## What is stored
///
/// The codec's bytes, JSON unless you choose otherwise, as `Data` under the key. They are decoded once, and
/// again when they have changed, whoever changed them: each look at the value compares them, which costs
/// O(bytes). Off Apple's systems they are in a file of their own, whose state costs about 1 µs to look up.
///
/// If they cannot be decoded, or if there is something else under the key, then the value is the default and
/// ``failure`` says why. Looking never overwrites them, and neither does an operation that builds on the
/// earlier value: it throws. Only ``set(_:)`` and ``reset()`` replace what cannot be read. A value whose
/// encoding stands for another, `Int??.some(nil)` or a relative URL in JSON, is refused; within a type of
/// one's own that is up to the type.
///
/// ## Threads
///
/// Any thread may call anything. Operations are done one after another, each as a whole: of a thousand
/// concurrent appends none is lost, on whichever instance they are called. An operation that throws has
/// changed nothing.
///
/// All instances with the same key see each other's changes, and so do their observers and ``values``. A
/// change that other code makes in `UserDefaults` is noticed by the next look or operation on an instance, and
/// reported then; between such code and an operation of this class nothing can mediate.
///
/// ## Processes
///
/// On Apple's platforms a change by another process is noticed by the next look after the system has passed it on,
/// and of two processes that change one value at the same time one may undo what the other did.
///
/// Elsewhere an operation reads, changes and stores while no other process can, so that none of their changes is lost.
/// A change is seen by the next look in every process; observers and ``values`` hear of it soon, by the system's
/// notification of files, on a thread of its own.
///
/// ## Where it is
///
/// On Apple's platforms: in the user defaults. Elsewhere Foundation's user defaults lose what they had when a process
/// is killed while it stores, and what other processes have stored. There the values of `UserDefaults.standard` are in
/// `$XDG_CONFIG_HOME/<program>/Stockroom/StoredValues.json` (`~/.config` by default), with the name of the executable for the
/// program, and those of a suite in a directory of the suite's name. As long as nothing is stored there the user
/// defaults count: what is registered with `register(defaults:)`, and what other code stores in them, which
/// ``reset()`` removes as well. What other code stores in them later is not seen.
///
/// ## Observation
///
/// The value and ``failure`` are observable, once per operation, and after it took effect. In a class that is
/// `@Observable` itself write `@ObservationIgnored` before the property; the value stays observable. Storing
/// the same bytes again is no change. Observation can miss a change that another thread makes at the very
/// moment of looking; ``values`` cannot.
///
/// ## Durability
///
/// On Apple's platforms an operation returns once the system's preferences service has the value: it survives
/// the end of the process, and the system writes it to disk soon after. It does not say whether it succeeded.
/// Elsewhere an operation replaces the file by a new one with all values of the suite, and returns once that is on
/// disk; it throws if that failed. At any moment the file is the old one or the new one, whatever happens to the
/// process or the machine. That takes two waits for the disk, some milliseconds, during which reading goes on.
@propertyWrapper
public final class StoredValue<Item: StorableItem>: Sendable {
  private let entry: UserDefaultsEntry
  private let observed: ObservedValue<Item>

  /// A value under a key, with a default for as long as nothing is stored.
  ///
  /// - Parameters:
  ///   - wrappedValue: the default. It is never stored of itself.
  ///   - key: the key in the user defaults.
  ///   - storage: where to keep the value: `UserDefaults.standard`, or those of a suite.
  ///   - codec: how the value becomes bytes.
  public init(
    wrappedValue: Item, key: String, storage: UserDefaults = .standard, codec: some Codec = JSONCodec()
  ) {
    entry = UserDefaultsEntry(storage: storage, key: key)
    observed = ObservedValue(defaultValue: wrappedValue, key: CacheKey(verbatim: key), codec: codec)
    UserDefaultsWriter.shared.add(self, key: key)
  }

  /// An optional value under a key: nil for as long as nothing is stored.
  public convenience init(
    key: String, storage: UserDefaults = .standard, codec: some Codec = JSONCodec()
  ) where Item: ExpressibleByNilLiteral {
    self.init(wrappedValue: nil, key: key, storage: storage, codec: codec)
  }

  deinit { UserDefaultsWriter.shared.remove(ObjectIdentifier(self), key: entry.key) }

  /// The present value: what is stored, or the default if nothing is, or if it cannot be read. O(bytes).
  public var wrappedValue: Item {
    look()
    return observed.value
  }

  /// The operations, and what else there is to know of the value.
  public var projectedValue: StoredValue<Item> { self }

  /// Why ``wrappedValue`` is the default although something is stored: a `StorageError` with code
  /// `decodingFailed`, which names the key and the cause, or, where there is a file, `corrupted`, `permissionDenied` or
  /// `io`, which names the file. Nil if all is well.
  public var failure: StorageError? {
    look()
    return observed.failure
  }

  /// The present value, or an error where ``wrappedValue`` would give the default for want of a better.
  /// O(bytes).
  ///
  /// - Throws: ``failure``.
  public func get() throws -> Item {
    look()
    return try observed.get()
  }

  /// The present value, then the value after each change, in order, for each subscriber of its own.
  ///
  /// No change is left out, however slowly the stream is read, nor between the present value and the first
  /// change. What has not been read yet is kept in memory. The stream ends when this object is gone.
  public var values: AsyncStream<Item> { values(bufferingPolicy: .unbounded) }

  /// As ``values``, with a limit to what is kept for a subscriber that is slow:
  /// `.bufferingNewest(1)` for the present value only. A value that is left out may be let go of in the midst of a
  /// change: if it is a class, its `deinit` must not use this object.
  public func values(
    bufferingPolicy: AsyncStream<Item>.Continuation.BufferingPolicy
  ) -> AsyncStream<Item> {
    look()
    return observed.values(bufferingPolicy: bufferingPolicy)
  }

  /// Stores a value, whatever was stored before. O(bytes).
  ///
  /// - Throws: `StorageError` with code `encodingFailed`; where there is a file, `diskFull`, `permissionDenied`,
  ///   `readOnly` or `io` if it could not be written, `corrupted` if it is damaged, since the other values in it would
  ///   be lost, and `locked` if another process does not let go of it for a minute.
  public func set(_ value: Item) throws {
    let bytes = try observed.encode(value)
    try UserDefaultsWriter.shared.write(entry) { try entry.replace(with: bytes) }
  }

  /// Removes what is stored, whatever it is: the value is the default again, or what has been registered as
  /// one with `UserDefaults.register(defaults:)`.
  ///
  /// - Throws: as ``set(_:)``, but for `encodingFailed`.
  public func reset() throws {
    try UserDefaultsWriter.shared.write(entry) { try entry.replace(with: nil) }
  }

  /// Stores what the closure makes of the present value, and nothing if it throws. No other operation comes
  /// between. O(bytes).
  ///
  /// While the closure runs, no other thread of the process can store under any key, in any user defaults, and
  /// off Apple's platforms no other process in these: keep it short, and do not let it wait for another
  /// thread, which may itself wait to store something. It may read any value, and store under other keys.
  ///
  /// - Throws: what the closure throws; ``failure`` if the present value cannot be read; as ``set(_:)``.
  public func update(_ change: (inout Item) throws -> Void) throws {
    try updateIfNeeded { item in
      try change(&item)
      return true
    }
  }

  /// As ``update(_:)``, but for a closure that may find that there is nothing to do, and returns false then.
  func updateIfNeeded(_ change: (inout Item) throws -> Bool) throws {
    var noticed = ObservedValue<Item>.Change()
    defer { observed.report(noticed) }
    try UserDefaultsWriter.shared.write(entry) {
      noticed = observed.take { entry.content }
      var item = try observed.unobserved()
      if try change(&item) { try entry.replace(with: observed.encode(item)) }
    }
  }

  /// Takes notice of what others have changed.
  private func look() {
    if !observed.hasBeenRead { entry.watch { UserDefaultsWriter.shared.refreshAll() } }
    observed.report(observed.take { entry.content })
  }
}

extension StoredValue: Observable {}

extension StoredValue: UserDefaultsReader {
  func refresh() -> (@Sendable () -> Void)? {
    guard observed.hasBeenRead else { return nil }
    let change = observed.take { entry.content }
    return { [observed] in observed.report(change) }
  }
}
