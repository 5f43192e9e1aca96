/// Who may open the files and directories that an engine makes (rule O5).
///
/// It holds for what the engine makes from now on, whatever the process's `umask` is. What is there already keeps the
/// permissions that it has.
public enum FilePermissions: Sendable, Hashable {
  /// Only the user that the process runs as: files have mode 0600, directories 0700.
  case owner
  /// The group of the files as well: files have mode 0660, directories 0770.
  ///
  /// For processes of several users that share a place. The directory decides which group that is if its set-group-ID
  /// bit is set.
  case group

  /// The mode of a file.
  package var fileMode: UInt16 { self == .owner ? 0o600 : 0o660 }
  /// The mode of a directory.
  package var directoryMode: UInt16 { self == .owner ? 0o700 : 0o770 }
}
