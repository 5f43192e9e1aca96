/// Lets go of a value on another thread, for what takes long.
func releaseElsewhere<Value: Sendable>(_ value: consuming Value) {
  Task.detached(priority: .utility) { [value] in withExtendedLifetime(value) {} }
}
