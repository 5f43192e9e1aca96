/// Identifies who makes a change, so that a subscriber does not receive its own changes.
///
/// A `Store` would read back everything it writes if ``StorageEngine/changes()`` reported it. So it creates an origin, and sets
/// it as ``current`` when it calls its engine. Streams that are created with an origin leave out the changes of that origin in
/// all built-in engines. Since the value is task-local, it also reaches an engine behind layers.
///
/// To support this in your own engine, read ``current`` in every write and in `changes()`, create the stream with
/// ``StorageChanges/makeStream(keyLimit:leavingOut:)``, and send it only the changes with another origin. A store in front of an
/// engine without this support does not follow the changes of others.
public final class ChangeOrigin: Sendable {
  /// The origin of the changes that the current task makes. Streams that the task creates leave them out.
  @TaskLocal public static var current: ChangeOrigin?

  /// Creates an origin that differs from every other.
  public init() {}
}
