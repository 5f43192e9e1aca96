#if canImport(Security)
  import Dispatch
  public import Foundation
  import Security
  public import StockroomCore

  /// The generic passwords of a service in the keychain of Apple's systems, as entries: the account is the key, the password is the value.
  ///
  /// For secrets, of which there are few: the keychain is slow, and its calls wait for another process. They are on the device only, for
  /// whichever program has its access group, and readable once the device has been unlocked after its start. Neither a batch nor a read of many
  /// is atomic, and nothing is heard of changes: no capability but `persistent`.
  ///
  /// Errors have the code `permissionDenied` if the keychain is locked or the program has no right to it, otherwise `io`; the cause is an
  /// `NSError` with the `OSStatus`.
  public struct KeychainStorageEngine: StorageEngine {
    /// The service of the passwords.
    public let service: String
    /// The access group, by which several programs of one developer share passwords. Nil for that of the program for what is new, and
    /// for all groups that the program may use for what is there: a program with several gives each engine a group or a service of its own.
    public let accessGroup: String?

    /// Opens nothing yet. The default service is the identifier of the program's bundle, or its name.
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
        // Somebody else was first.
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

    /// What `convert` makes of the result; nil if there is none.
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

    /// Waits for the keychain on a thread that may wait (rule C5).
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
