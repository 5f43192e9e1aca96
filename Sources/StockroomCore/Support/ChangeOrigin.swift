/// Who makes changes, for a subscriber that does not want to be told of its own.
///
/// It is passed on beside the calls, so that it reaches the engine through whatever stands in front of it.
package final class ChangeOrigin: Sendable {
  /// Whose changes the current task makes, and whose are left out of the streams that it subscribes to.
  @TaskLocal package static var current: ChangeOrigin?

  package init() {}
}
