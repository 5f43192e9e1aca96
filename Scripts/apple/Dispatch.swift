// What Dispatch has on Apple's systems only: sources for files. Compiled as a part of StockroomCore, which uses them.
import Dispatch

protocol DispatchSourceFileSystemObject: DispatchSourceProtocol, Sendable {
  var data: DispatchSource.FileSystemEvent { get }
}

extension DispatchSource {
  class func makeFileSystemObjectSource(
    fileDescriptor: Int32, eventMask: FileSystemEvent, queue: DispatchQueue?
  ) -> any DispatchSourceFileSystemObject {
    fatalError("This stand-in is never run.")
  }
}
