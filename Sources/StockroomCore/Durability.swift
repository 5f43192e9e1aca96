/// When a write is acknowledged.
///
/// With either setting, an acknowledged write survives a crash or a kill of the process, and no batch is ever stored in
/// part. Each persistent engine documents what each setting costs and what it can lose.
public enum Durability: String, Sendable, CaseIterable {
  /// A write is acknowledged once it is on disk: it survives a crash of the operating system and a power failure.
  case full
  /// A write is acknowledged once the operating system has it: it survives a crash or a kill of the process, but the
  /// last writes may be lost if the machine crashes or loses power.
  case process
}
