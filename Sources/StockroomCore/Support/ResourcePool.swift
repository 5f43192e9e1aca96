/// Keeps what is costly to make and can serve one caller at a time, such as a connection for reading.
///
/// There are never more than callers at the same time, and no caller ever waits for another.
package final class ResourcePool<Resource: Sendable>: Sendable {
  // Visible to the engines' modules, so that the compiler makes a version for the engine's own type there: without
  // that, lending costs as much as finding an entry does.
  @usableFromInline let idle = Guarded<[Resource]>([])
  @usableFromInline let capacity: Int
  @usableFromInline let make: @Sendable () throws -> Resource
  @usableFromInline let destroy: @Sendable (Resource) -> Void

  /// - Parameter capacity: How many resources are kept while nobody uses them.
  package init(
    capacity: Int, make: @escaping @Sendable () throws -> Resource,
    destroy: @escaping @Sendable (Resource) -> Void
  ) {
    self.capacity = capacity
    self.make = make
    self.destroy = destroy
  }

  /// Lends a resource to `body`. Makes one if none is idle.
  @inlinable package func withResource<Result>(_ body: (Resource) throws -> Result) throws -> Result {
    let resource = try idle.withLock { $0.popLast() } ?? make()
    defer {
      let isKept = idle.withLock { idle in
        guard idle.count < capacity else { return false }
        idle.append(resource)
        return true
      }
      if !isKept { destroy(resource) }
    }
    return try body(resource)
  }

  /// Destroys the resources that nobody uses.
  package func drain() {
    let resources = idle.withLock { idle in
      defer { idle = [] }
      return idle
    }
    for resource in resources { destroy(resource) }
  }
}
