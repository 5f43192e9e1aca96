/// Who may open the files and directories that an engine creates (rule O5).
///
/// The process's `umask` has no effect on them. Existing files and directories keep their permissions.
public enum FilePermissions: Sendable, Hashable {
  /// Only the user of the process: files have mode 0600, directories 0700.
  case owner
  /// Also the group of the files: files have mode 0660, directories 0770.
  ///
  /// For processes of several users that share a place. If the directory has the set-group-ID bit, new files get its group.
  case group

  /// The mode of a file.
  package var fileMode: UInt16 { self == .owner ? 0o600 : 0o660 }
  /// The mode of a directory.
  package var directoryMode: UInt16 { self == .owner ? 0o700 : 0o770 }
}
