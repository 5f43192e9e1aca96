import Foundation
import StockroomCore
import StockroomKitSupport

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Running the server as another user, because PostgreSQL refuses to run as root.
extension PostgreSQLServer {
  /// Whether the server must run as another user, because this process runs as root.
  private static var needsUser: Bool { getuid() == 0 }

  /// The command, run as the server's user.
  public static func asUser(_ command: [String]) -> [String] {
    needsUser
      ? ["/usr/bin/setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] + command : command
  }

  /// Makes the server's user the owner of a directory, if that is another user.
  public static func giveToUser(_ directory: URL) throws {
    guard needsUser else { return }
    var (user, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
    var names = [CChar](repeating: 0, count: 16_384)
    guard getpwnam_r("postgres", &user, &names, names.count, &found) == 0, found != nil else {
      throw StorageError(.unsupported, "There is no user postgres, and a server does not run as root.")
    }
    guard chown(directory.path, user.pw_uid, user.pw_gid) == 0 else {
      throw StorageError.posix(errno, "Giving \(directory.path) to the user postgres failed")
    }
  }

  /// Lets the server's user traverse a directory of this process's user.
  public static func letUserEnter(_ directory: URL) throws {
    guard needsUser else { return }
    try FileManager.default.setAttributes([.posixPermissions: 0o711], ofItemAtPath: directory.path)
  }

  /// Whether the server's user can enter a directory, which may be below one that denies access.
  static func userMayEnter(_ directory: URL) async throws -> Bool {
    guard needsUser else { return true }
    let process = try LineProcess(asUser(["/bin/sh", "-c", #"cd "$1""#, "sh", directory.path]))
    process.closeInput()
    return await process.waitUntilEnd() == .exited(status: 0)
  }
}
