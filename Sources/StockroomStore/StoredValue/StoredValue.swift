import Foundation
import Observation
import StockroomCore

/// A single value that is stored in `UserDefaults`.
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
/// class. It is intended for settings: a flag, a choice, a list of identifiers. Store values that are large,
/// or that grow with use, in a ``Store`` or an ``AsyncStoredValue``.
///
/// ## Format
///
/// The codec's bytes, JSON by default, are stored as `Data` under the key. They are decoded once, and again
/// after they have changed: each read compares them, which costs O(bytes). On systems other than Apple's,
/// they are in a file, whose state takes about 1 µs to check.
///
/// If the bytes cannot be decoded, or if there is an object of another type under the key, the value is the default and
/// ``failure`` is the error. Reading never overwrites the stored bytes, and operations that depend on the earlier value
/// throw. ``set(_:)`` replaces bytes that cannot be read, unless they are of a newer version, and ``reset()`` removes bytes
/// of any version. Storing a value that does not survive encoding, such as `Int??.some(nil)` or a relative URL in JSON,
/// throws `.encodingFailed`; within your own types, the type is responsible.
///
/// ## Threads
///
/// Any thread may call any method. Operations are executed one after another, each atomically, across all instances in the
/// process: of a thousand concurrent appends, none is lost. An operation that throws has changed nothing, except as
/// described under *Processes*.
///
/// All instances with the same key see each other's changes, and so do their observers and ``values``. A change that other
/// code makes in `UserDefaults` is detected by the next read or operation of an instance, and reported then. Such a
/// change is not synchronized with the operations of this class.
///
/// ## Processes
///
/// On Apple's platforms a change by another process is detected by the next read after the system has propagated it. If
/// two processes change one value at the same time, one change may be lost.
///
/// On other systems, an operation reads, changes and stores the value under a lock between processes, so that
/// no change is lost. The next read in any process returns the new value; observers and ``values`` are
/// notified soon after the change, by inotify, on another thread. If the disk fails after the file has been
/// replaced, the operation throws `io`, although the new value may already be readable.
///
/// ## Location
///
/// On Apple's platforms values are stored in the user defaults. On other systems Foundation's user defaults lose values
/// when a process is killed during a write, and overwrite those of other processes. There the values of
/// `UserDefaults.standard` are stored in `$XDG_CONFIG_HOME/<program>/Stockroom/StoredValues.json` (by default in
/// `~/.config`), where `<program>` is the name of the executable, and those of a suite in a directory with the name of the
/// suite. As long as the file contains no value for the key, the value in the user defaults applies: one that is registered
/// with `register(defaults:)`, or one that other code has stored there, which ``reset()`` removes as well. Once the file
/// contains a value, values that other code stores in the user defaults are ignored.
///
/// ## Observation
///
/// The value and ``failure`` are observable and change once per operation, after it took effect. In a class
/// that is itself `@Observable`, mark the property with `@ObservationIgnored`; the value stays observable.
/// Storing the same bytes again is not a change. Observation can miss a change that another thread makes
/// while the value is read; ``values`` cannot.
///
/// ## Durability
///
/// On Apple's platforms, an operation returns once the system's preferences service has the value: it survives the end of
/// the process, and the system writes it to disk soon after, without reporting errors. On other systems, an operation
/// replaces the file with a new one that contains all values of the suite, and returns once the new file is on disk; it
/// throws if that fails. If the process or the machine crashes, the file is either the old one or the new one. An operation
/// waits for two syncs, a few milliseconds; reads do not wait.
@propertyWrapper
public final class StoredValue<Item: StorableItem>: Sendable {
  private let entry: UserDefaultsEntry
  private let observed: ObservedValue<Item>

  /// Creates a value with a default that applies as long as nothing is stored.
  ///
  /// - Parameters:
  ///   - wrappedValue: The default, which is not stored.
  ///   - key: The key in the user defaults.
  ///   - storage: The user defaults: `UserDefaults.standard`, or those of a suite.
  ///   - codec: Converts the value to bytes.
  public init(
    wrappedValue: Item, key: String, storage: UserDefaults = .standard, codec: some Codec = JSONCodec()
  ) {
    entry = UserDefaultsEntry(storage: storage, key: key)
    observed = ObservedValue(defaultValue: wrappedValue, key: CacheKey(verbatim: key), codec: codec)
    UserDefaultsWriter.shared.add(self, key: key)
  }

  /// Creates an optional value, which is nil as long as nothing is stored.
  public convenience init(
    key: String, storage: UserDefaults = .standard, codec: some Codec = JSONCodec()
  ) where Item: ExpressibleByNilLiteral {
    self.init(wrappedValue: nil, key: key, storage: storage, codec: codec)
  }

  deinit { UserDefaultsWriter.shared.remove(ObjectIdentifier(self), key: entry.key) }

  /// The stored value, or the default if nothing is stored or if it cannot be read. O(bytes).
  public var wrappedValue: Item {
    refreshAndReport()
    return observed.value
  }

  /// This object, with the operations on the value.
  public var projectedValue: StoredValue<Item> { self }

  /// The error of reading the stored value, because of which ``wrappedValue`` is the default: a
  /// `StorageError` with code `decodingFailed` or `unsupported`, which names the key and the cause, or, on
  /// systems with a file, `corrupted`, `permissionDenied` or `io`, which names the file. Nil if there was
  /// none.
  public var failure: StorageError? {
    refreshAndReport()
    return observed.failure
  }

  /// The stored value, or the default if nothing is stored. Throws if it cannot be read. O(bytes).
  ///
  /// - Throws: ``failure``.
  public func get() throws -> Item {
    refreshAndReport()
    return try observed.get()
  }

  /// A stream of the current value, then of the value after each change, in order. Each call returns a new
  /// stream.
  ///
  /// No change is skipped. Values that have not been read are buffered without limit. The stream ends when this object is
  /// released.
  public var values: AsyncStream<Item> { values(bufferingPolicy: .unbounded) }

  /// Like ``values``, with a limit on the buffer of a slow subscriber, such as `.bufferingNewest(1)` for the
  /// current value only. A value that is skipped may be released during a change: if it is a class, its
  /// `deinit` must not use this object.
  public func values(
    bufferingPolicy: AsyncStream<Item>.Continuation.BufferingPolicy
  ) -> AsyncStream<Item> {
    refreshAndReport()
    return observed.values(bufferingPolicy: bufferingPolicy)
  }

  /// Stores a value. It replaces even a value that cannot be read, unless that is of a newer version. O(bytes).
  ///
  /// - Throws: `StorageError` with code `encodingFailed`, or with code `unsupported` if the stored value is of a newer
  ///   version; on systems with a file, `diskFull`, `permissionDenied`, `readOnly` or `io` if the file could not be
  ///   written, `corrupted` if the file is corrupted, since its other values would be lost, `unsupported` if a newer
  ///   version of this library has written the file, and `locked` if another process holds its lock for a minute.
  public func set(_ value: Item) throws {
    let bytes = try observed.encode(value)
    try UserDefaultsWriter.shared.write(entry) {
      if case .bytes(let stored) = entry.content {
        try stored.rejectReplacing(observed.key, newerThan: observed.codec.version)
      }
      try entry.replace(with: bytes)
    }
  }

  /// Removes the stored value, even one that cannot be read. The value is the default again, or the one
  /// registered with `UserDefaults.register(defaults:)`.
  ///
  /// - Throws: as ``set(_:)``, but never `encodingFailed`, and `unsupported` only if a newer version of this library has
  ///   written the file.
  public func reset() throws {
    try UserDefaultsWriter.shared.write(entry) { try entry.replace(with: nil) }
  }

  /// Reads, changes and stores the value atomically. Stores nothing if the closure throws. O(bytes).
  ///
  /// While the closure runs, no other thread of the process can store a value under any key, in any user defaults, and on
  /// systems other than Apple's, no other process can store a value in the same user defaults. So the closure should be
  /// short, and must not wait for another thread, which may itself wait to store a value. It may read any value, and store
  /// values under other keys.
  ///
  /// - Throws: what the closure throws; ``failure`` if the current value cannot be read; as ``set(_:)``.
  public func update(_ change: (inout Item) throws -> Void) throws {
    try updateIfNeeded { item in
      try change(&item)
      return true
    }
  }

  /// Like ``update(_:)``, for a closure that returns false if it has changed nothing.
  func updateIfNeeded(_ body: (inout Item) throws -> Bool) throws {
    watchIfNeeded()
    var change = ObservedValue<Item>.Change()
    defer { observed.report(change) }
    try UserDefaultsWriter.shared.write(entry) {
      change = observed.take { entry.content }
      var item = try observed.unobserved()
      if try body(&item) { try entry.replace(with: observed.encode(item)) }
    }
  }

  /// Updates the value to the stored content, which other code may have changed.
  private func refreshAndReport() {
    watchIfNeeded()
    observed.report(observed.take { entry.content })
  }

  /// Starts to watch for changes by other processes, at the first use. If the system's limit of watches is reached, the
  /// next use retries.
  private func watchIfNeeded() { entry.watch { UserDefaultsWriter.shared.refreshAll() } }
}

extension StoredValue: Observable {}

extension StoredValue: UserDefaultsReader {
  func refresh() -> (@Sendable () -> Void)? {
    guard observed.hasBeenRead else { return nil }
    let change = observed.take { entry.content }
    return { [observed] in observed.report(change) }
  }
}
