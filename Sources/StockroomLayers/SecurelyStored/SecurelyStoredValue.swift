#if canImport(CryptoKit) || Encryption
  import Observation
  public import StockroomCore
  public import StockroomStore

  /// A single secret, such as a token: stored in the keychain on Apple's systems, and encrypted in any engine on all systems.
  ///
  /// ```swift
  /// @SecurelyStoredValue<String>(key: "authToken", storage: engine.encrypted(with: keyring)) var authToken
  ///
  /// try await $authToken.valueHasLoaded()
  /// authToken                                 // nil, until something is stored
  /// try await $authToken.set("…")
  /// try await $authToken.remove()
  /// ```
  ///
  /// The value is read through the property, which is optional, and changed through its projection, the `$` form, which is this
  /// class. Loading, order, errors, observation and changes by others are those of `AsyncStoredValue`, on which this class is
  /// built. If the value cannot be decrypted, ``failure`` is the error, and the property is nil or keeps the value that was read
  /// before.
  ///
  /// The value is not protected in memory.
  @propertyWrapper
  public final class SecurelyStoredValue<Item: StorableItem>: Sendable {
    let stored: AsyncStoredValue<Item?>

    /// Creates a secret that is stored in an engine with encrypted values.
    ///
    /// - Parameters:
    ///   - key: The key, of any length and content.
    ///   - storage: The engine, without another layer in front of the encryption.
    ///   - codec: Converts the value to bytes.
    public init(
      key: String, storage: EncryptedEngine<some StorageEngine>, codec: some Codec = JSONCodec()
    ) {
      stored = AsyncStoredValue(storage: storage, key: key, codec: codec)
    }

    /// Creates a secret that is stored in an engine with encrypted values and hidden keys.
    public init(
      key: String, storage: HiddenKeysEngine<EncryptedEngine<some StorageEngine>>,
      codec: some Codec = JSONCodec()
    ) {
      stored = AsyncStoredValue(storage: storage, key: key, codec: codec)
    }

    #if canImport(Security)
      /// Creates a secret that is stored in the keychain.
      ///
      /// - Parameters:
      ///   - key: The account of the generic password.
      ///   - keychain: The service and the access group in the keychain. Default: the passwords of this program.
      ///   - codec: Converts the value to bytes.
      public init(
        key: String, keychain: KeychainStorageEngine = KeychainStorageEngine(),
        codec: some Codec = JSONCodec()
      ) {
        stored = AsyncStoredValue(storage: keychain, key: key, codec: codec)
      }
    #endif

    /// The last value that was read or stored. Nil until it has loaded, and if none is stored or the stored bytes cannot be
    /// decoded. O(1).
    public var wrappedValue: Item? { stored.wrappedValue }

    /// This object, with the operations on the value.
    public var projectedValue: SecurelyStoredValue<Item> { self }

    /// The error of loading the value: with code `permissionDenied` if the encryption key is wrong, `corrupted` if the stored value
    /// has been changed, `decodingFailed` if its bytes cannot be decoded, or what the engine threw. Nil if there was none.
    public var failure: StorageError? { stored.failure }

    /// Waits until all earlier operations have ended and the value has been loaded.
    ///
    /// - Throws: ``failure``; `CancellationError`. The next call retries.
    public func valueHasLoaded() async throws { try await stored.valueHasLoaded() }

    /// The value, once it has been loaded; nil if none is stored. Waits and throws as ``valueHasLoaded()``.
    public func get() async throws -> Item? { try await stored.get() }

    /// A stream of the current value, then of the value after each change, in order. Each call returns a new stream.
    ///
    /// No change is skipped. Values that have not been read are buffered without limit. The stream ends when this object is
    /// released.
    public var values: AsyncStream<Item?> { stored.values }

    /// Stores a value, replacing even one that cannot be read, unless that is of a newer version (`VersionedItem`). At most one
    /// read and one write, in one transaction if the engine has `EngineCapabilities.transactions`.
    ///
    /// - Throws: `StorageError` with code `encodingFailed`, or with code `unsupported` if the stored value is of a newer version;
    ///   what the engine throws; `CancellationError`.
    public func set(_ value: Item) async throws { try await stored.set(value) }

    /// Removes the stored value, even one that cannot be read. The value is nil afterwards. One write.
    ///
    /// - Throws: what the engine throws; `CancellationError`.
    public func remove() async throws { try await stored.reset() }

    /// Reads, changes and stores the value atomically with regard to other operations on this object. Stores nothing if the closure
    /// throws, and removes the value if it becomes nil. Costs the same as ``set(_:)``, after loading if that has not been done.
    ///
    /// - Throws: what the closure throws; as ``valueHasLoaded()`` if the current value could not be read; as ``set(_:)``.
    public func update(_ change: @Sendable (inout Item?) throws -> Void) async throws {
      try await stored.update(change) { $0 == nil }
    }
  }

  extension SecurelyStoredValue: Observable {}

  /// Changes of a part of the value. Each is one ``SecurelyStoredValue/update(_:)`` and throws as that does.
  extension SecurelyStoredValue {
    /// Sets one property of the value. Without a value, nothing is stored. Throws as ``update(_:)``.
    public func set<Value: Sendable>(
      _ keyPath: any WritableKeyPath<Item, Value> & Sendable, to value: Value
    ) async throws {
      try await update { $0?[keyPath: keyPath] = value }
    }

    /// Toggles the value. No value counts as false. Throws as ``update(_:)``.
    public func toggle() async throws where Item == Bool {
      try await update { $0 = !($0 ?? false) }
    }

    /// Appends an element. No value counts as empty. Throws as ``update(_:)``.
    public func append(_ element: Item.Element) async throws
    where Item: RangeReplaceableCollection, Item.Element: Sendable {
      try await update { item in
        var elements = item ?? Item()
        elements.append(element)
        item = elements
      }
    }

    /// Replaces the first element that equals `element`. If there is none, the value stays the same and is written again. Throws as
    /// ``update(_:)``.
    public func replace(_ element: Item.Element, with replacement: Item.Element) async throws
    where Item: RangeReplaceableCollection, Item.Element: Equatable & Sendable {
      try await update { _ = $0?.replaceFirst(element, with: replacement) }
    }

    /// Removes all elements that equal `element`, or appends it if there is none. No value counts as empty. Throws as
    /// ``update(_:)``.
    public func togglePresence(_ element: Item.Element) async throws
    where Item: RangeReplaceableCollection, Item.Element: Equatable & Sendable {
      try await update { item in
        var elements = item ?? Item()
        elements.togglePresence(of: element)
        item = elements
      }
    }

    /// Sets the value of a key of the dictionary; nil removes the key. No dictionary counts as empty. Throws as ``update(_:)``.
    public func update<Key: Hashable & Sendable, Value: Sendable>(key: Key, value: Value?) async throws
    where Item == [Key: Value] {
      try await update { item in
        var dictionary = item ?? [:]
        dictionary[key] = value
        item = dictionary
      }
    }
  }
#endif
