#if canImport(FoundationEssentials) && !canImport(Darwin)
  import FoundationEssentials
#else
  import Foundation
#endif

extension FileManager {
  /// A directory for an engine's files.
  ///
  /// On Apple's systems, the named directories are the system's own. Elsewhere they follow the XDG base directory specification;
  /// the directory for documents is read from the environment. Naming a directory does not create it: the engine that opens it
  /// does.
  public struct Directory: Sendable, Hashable {
    /// Where the directory is.
    public let url: URL

    /// The directory at a file URL.
    public init(url: URL) { self.url = url }

    /// The default directory for data: Application Support on macOS, Documents on Apple's other systems,
    /// `$XDG_DATA_HOME` (by default `~/.local/share`) elsewhere.
    public static var defaultStorageDirectory: Directory {
      #if canImport(Darwin) && !os(macOS)
        .documents
      #else
        .applicationSupport
      #endif
    }

    /// The user's documents: `$XDG_DOCUMENTS_DIR` (by default `~/Documents`) outside Apple's systems. The file
    /// `user-dirs.dirs` of the user's desktop is not read.
    public static var documents: Directory {
      #if canImport(Darwin)
        Directory(url: .documentsDirectory)
      #else
        .xdg("XDG_DOCUMENTS_DIR", fallback: "Documents")
      #endif
    }

    /// Data that can be recreated, and that the system may delete: `$XDG_CACHE_HOME` (by default `~/.cache`) outside
    /// Apple's systems.
    public static var caches: Directory {
      #if canImport(Darwin)
        Directory(url: .cachesDirectory)
      #else
        .xdg("XDG_CACHE_HOME", fallback: ".cache")
      #endif
    }

    /// A program's own data, which the user does not handle: Application Support on Apple's systems, `$XDG_DATA_HOME`
    /// (by default `~/.local/share`) elsewhere.
    public static var applicationSupport: Directory {
      #if canImport(Darwin)
        Directory(url: .applicationSupportDirectory)
      #else
        .xdg("XDG_DATA_HOME", fallback: ".local/share")
      #endif
    }

    /// Data that is not needed once the process has ended.
    public static var temporary: Directory {
      Directory(url: FileManager.default.temporaryDirectory)
    }

    /// A directory below ``defaultStorageDirectory``.
    public static func defaultStorageDirectory(appendingPath path: String) -> Directory {
      defaultStorageDirectory.appending(path)
    }

    /// A directory below ``documents``.
    public static func documents(appendingPath path: String) -> Directory { documents.appending(path) }

    /// A directory below ``caches``.
    public static func caches(appendingPath path: String) -> Directory { caches.appending(path) }

    /// A directory below ``applicationSupport``.
    public static func applicationSupport(appendingPath path: String) -> Directory {
      applicationSupport.appending(path)
    }

    /// The directory that the programs of an app group share: an app, its widgets and its other extensions.
    ///
    /// On Apple's systems the group must be among the app's entitlements. Elsewhere there are no app groups; the directory
    /// is then named after the group below ``applicationSupport``, and every program of the user may use it.
    ///
    /// - Throws: ``StorageError`` with code `permissionDenied` if the system gives this program no access to the group,
    ///   `unsupported` if the identifier is empty.
    public static func sharedContainer(
      forAppGroupIdentifier identifier: String
    ) throws -> Directory {
      guard !identifier.isEmpty else {
        throw StorageError(.unsupported, "An app group needs an identifier.")
      }
      #if canImport(Darwin)
        guard
          let url = FileManager.default.containerURL(
            forSecurityApplicationGroupIdentifier: identifier)
        else {
          throw StorageError(
            .permissionDenied,
            "There is no container of the app group \(identifier.debugDescription) for this program. Is it among its entitlements?"
          )
        }
        return Directory(url: url)
      #else
        return applicationSupport.appending(pathComponent(for: identifier))
      #endif
    }

    /// A directory below ``sharedContainer(forAppGroupIdentifier:)``. Throws as that method.
    public static func sharedContainer(
      forAppGroupIdentifier identifier: String, appendingPath path: String
    ) throws -> Directory {
      try sharedContainer(forAppGroupIdentifier: identifier).appending(path)
    }

    /// A directory below ``temporary``.
    public static func temporary(appendingPath path: String) -> Directory { temporary.appending(path) }

    #if !canImport(Darwin)
      /// The user's configuration files: `$XDG_CONFIG_HOME` (by default `~/.config`).
      package static var configuration: Directory { .xdg("XDG_CONFIG_HOME", fallback: ".config") }
    #endif

    /// A directory below this one.
    package func appending(_ path: String) -> Directory {
      Directory(url: url.appending(path: path, directoryHint: .isDirectory))
    }

    #if !canImport(Darwin)
      /// The directory that an environment variable names, or one in the home directory. A relative path is ignored, as the
      /// specification requires.
      private static func xdg(_ variable: String, fallback: String) -> Directory {
        let environment = ProcessInfo.processInfo.environment
        if let path = environment[variable], path.hasPrefix("/") {
          return Directory(url: URL(filePath: path, directoryHint: .isDirectory))
        }
        let home = environment["HOME"].map { URL(filePath: $0, directoryHint: .isDirectory) }
        return Directory(url: home ?? .homeDirectory).appending(fallback)
      }
    #endif
  }
}
