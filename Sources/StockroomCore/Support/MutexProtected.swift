import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A value protected by a `Mutex`, with annotations for the thread sanitizer.
///
/// On Linux a contended `Mutex` is passed from one thread to the next inside the kernel, which the sanitizer does not see, so it
/// reports a race between their accesses to the value. In debug builds, this type notifies the sanitizer, as the runtime does for
/// tasks. In release builds, it is only a `Mutex`.
package struct MutexProtected<Value: ~Copyable>: ~Copyable {
  @usableFromInline let mutex: Mutex<Value>

  @inlinable package init(_ value: consuming sending Value) { mutex = Mutex(value) }

  /// Calls `body` with exclusive access to the value.
  @inlinable @inline(__always)
  package borrowing func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    #if DEBUG
      let address = withUnsafePointer(to: mutex) { UnsafeMutableRawPointer(mutating: $0) }
    #endif
    return try mutex.withLock { (value: inout sending Value) throws(Failure) -> sending Result in
      #if DEBUG
        ThreadSanitizer.acquire?(address)
        defer { ThreadSanitizer.release?(address) }
      #endif
      return try body(&value)
    }
  }
}

extension MutexProtected: Sendable where Value: ~Copyable {}

#if DEBUG
  /// The interface of the thread sanitizer, nil where the program runs without it.
  @usableFromInline enum ThreadSanitizer {
    @usableFromInline typealias Annotation = @convention(c) (UnsafeMutableRawPointer) -> Void

    @usableFromInline static let acquire = annotation("__tsan_acquire")
    @usableFromInline static let release = annotation("__tsan_release")

    private static func annotation(_ name: String) -> Annotation? {
      dlsym(dlopen(nil, RTLD_NOW), name).map { unsafeBitCast($0, to: Annotation.self) }
    }
  }
#endif
