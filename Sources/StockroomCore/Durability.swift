/// When a write counts as done.
///
/// Whatever the setting, an acknowledged write survives the death of the process, and a batch is never half
/// there. Each persistent engine documents what its setting costs and what it can lose.
public enum Durability: String, Sendable, CaseIterable {
  /// A write is acknowledged once it is on disk: it survives the death of the machine.
  case full
  /// A write is acknowledged once the operating system has it: it survives the death of the process, and the
  /// last of them may be lost when the machine dies.
  case process
}
