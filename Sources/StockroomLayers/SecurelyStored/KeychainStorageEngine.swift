#if canImport(Security)
  import Dispatch
  public import Foundation
  import Security
  public import StockroomCore

  /// Stores entries as the generic passwords of a service in the keychain of Apple's systems: the account is the key, the password
  /// is the value.
  ///
  /// For a small number of secrets: the keychain is slow, and its calls wait for another process. The passwords stay on the device,
  /// are available to programs with the access group, and can be read once the device has been unlocked after it was started.
  /// Neither batches nor reads of many keys are atomic, and there is no change feed: the only capability is `persistent`.
  ///
  /// An error of the keychain has the code `permissionDenied` if the keychain is locked or the program may not use it, otherwise
  /// `io`. Its cause is an `NSError` with the `OSStatus`.
  public struct KeychainStorageEngine: StorageEngine {
    /// The service of the passwords.
    public let service: String
    /// The access group, which several programs of one developer can share. If it is nil, new passwords are added to the default
    /// group of the program, and existing ones are found in all groups that the program may use. So a program with several groups
    /// must use a group or a service of its own for each engine.
    public let accessGroup: String?

    /// Creates an engine. Does not access the keychain. The default service is the identifier of the program's bundle or, if it has
    /// none, the name of the process.
    public init(service: String? = nil, accessGroup: String? = nil) {
      self.service = service ?? Bundle.main.bundleIdentifier ?? ProcessInfo.processInfo.processName
      self.accessGroup = accessGroup
    }

    /// `persistent`.
    public var capabilities: EngineCapabilities { .persistent }

    /// Adds the password, or updates it.
    public func write(_ data: Data, key: CacheKey) async throws {
      try key.validate()
      try await call("write the value of \(key)") {
        let value = [kSecValueData: data] as [CFString: Any]
        let status = SecItemUpdate(query(key) as CFDictionary, value as CFDictionary)
        guard status == errSecItemNotFound else { return status }
        let attributes = query(key).merging(value) { $1 }
          .merging([kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly]) { $1 }
        let added = SecItemAdd(attributes as CFDictionary, nil)
        // Another caller has added the password in the meantime.
        return added == errSecDuplicateItem
          ? SecItemUpdate(query(key) as CFDictionary, value as CFDictionary) : added
      }
    }

    /// The password of the account.
    public func read(key: CacheKey) async throws -> Data? {
      try key.validate()
      return try await find("read the value of \(key)", key, { [kSecReturnData: true] }) { $0 as? Data }
    }

    /// Deletes the password of the account.
    public func remove(key: CacheKey) async throws {
      try key.validate()
      try await call("remove \(key)") {
        let status = SecItemDelete(query(key) as CFDictionary)
        return status == errSecItemNotFound ? errSecSuccess : status
      }
    }

    /// The accounts of the service.
    public func allKeys() async throws -> [CacheKey] {
      let all = { @Sendable in
        [kSecMatchLimit: kSecMatchLimitAll, kSecReturnAttributes: true] as [CFString: Any]
      }
      let keys = try await find("list the keys", nil, all) { result in
        (result as? [[String: Any]])?.compactMap { $0[kSecAttrAccount as String] as? String }
      }
      return (keys ?? []).map(CacheKey.init(verbatim:))
    }

    /// When the password was added.
    public func createdAt(key: CacheKey) async throws -> Date? {
      try await date(kSecAttrCreationDate, of: key)
    }

    /// When the password was last changed.
    public func updatedAt(key: CacheKey) async throws -> Date? {
      try await date(kSecAttrModificationDate, of: key)
    }

    private func date(_ attribute: CFString, of key: CacheKey) async throws -> Date? {
      try key.validate()
      let name = attribute as String
      return try await find("read the times of \(key)", key, { [kSecReturnAttributes: true] }) { result in
        (result as? [String: Any])?[name] as? Date
      }
    }

    private func query(_ key: CacheKey?) -> [CFString: Any] {
      var query: [CFString: Any] = [
        kSecClass: kSecClassGenericPassword, kSecAttrService: service, kSecUseDataProtectionKeychain: true,
      ]
      query[kSecAttrAccount] = key?.value
      query[kSecAttrAccessGroup] = accessGroup
      return query
    }

    /// Searches the keychain. Returns the result that `convert` has converted, or nil if nothing was found.
    private func find<Found: Sendable>(
      _ what: String, _ key: CacheKey?, _ wanted: @escaping @Sendable () -> [CFString: Any],
      _ convert: @escaping @Sendable (CFTypeRef?) -> Found?
    ) async throws -> Found? {
      let found = MutexProtected<Found?>(nil)
      try await call(what) {
        var result: CFTypeRef?
        let status = SecItemCopyMatching(query(key).merging(wanted()) { $1 } as CFDictionary, &result)
        if status == errSecSuccess {
          let converted = convert(result)
          found.withLock { $0 = converted }
        }
        return status == errSecItemNotFound ? errSecSuccess : status
      }
      return found.withLock { $0 }
    }

    /// Calls the keychain on a thread that may block (rule C5). Throws an error for any status except success.
    private func call(_ what: String, _ body: @escaping @Sendable () -> OSStatus) async throws {
      try Task.checkCancellation()
      let status = try await ThreadResult.wait { finish in
        DispatchQueue.global().async { finish(.success(body())) }
      }
      guard status != errSecSuccess else { return }
      let isRefused = [errSecInteractionNotAllowed, errSecAuthFailed, errSecMissingEntitlement].contains(
        status)
      let reason = SecCopyErrorMessageString(status, nil).map { $0 as String } ?? "status \(status)"
      throw StorageError(
        isRefused ? .permissionDenied : .io, "The keychain could not \(what): \(reason).",
        underlying: NSError(domain: NSOSStatusErrorDomain, code: Int(status)))
    }
  }
#endif
