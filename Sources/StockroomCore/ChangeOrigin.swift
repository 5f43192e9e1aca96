/// Who makes changes, for a subscriber that leaves out its own changes.
///
/// A `Store` knows what it writes, and would read all of it back if ``StorageEngine/changes()`` reported it. So it calls its engine with an
/// origin of its own as ``current``. All built-in engines leave the changes of an origin out of the streams that are made with it. A
/// task-local value reaches the engine through whatever stands in front of it.
///
/// To do so in an engine of your own, take ``current`` with every write and in `changes()`, send to a stream only what has another origin than
/// the stream, and make the stream with ``StorageChanges/makeStream(keyLimit:leavingOut:)``. A store in front of an engine that does not do so
/// does not follow the changes of others.
public final class ChangeOrigin: Sendable {
  /// Whose changes the current task makes, and whose are left out of the streams that it subscribes to.
  @TaskLocal public static var current: ChangeOrigin?

  /// An origin that is different from every other.
  public init() {}
}
