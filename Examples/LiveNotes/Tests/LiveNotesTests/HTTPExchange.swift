import Foundation

#if canImport(Darwin)
  import Darwin
#else
  import Glibc
#endif

/// Connects a socket to a server on this machine.
func connectToLoopback(port: Int, receiveBuffer: Int32? = nil) throws -> Int32 {
  #if canImport(Darwin)
    let descriptor = Darwin.socket(AF_INET, SOCK_STREAM, 0)
  #else
    let descriptor = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
  #endif
  guard descriptor >= 0 else { throw SystemFailure("No socket") }
  _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
  if var size = receiveBuffer {
    setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
  }
  var address = sockaddr_in()
  address.sin_family = sa_family_t(AF_INET)
  address.sin_port = in_port_t(UInt16(port).bigEndian)
  address.sin_addr.s_addr = inet_addr("127.0.0.1")
  let code = withUnsafePointer(to: &address) { pointer in
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      #if canImport(Darwin)
        Darwin.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      #else
        Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      #endif
    }
  }
  guard code == 0 else {
    close(descriptor)
    throw SystemFailure("Connecting failed")
  }
  return descriptor
}

/// Receives everything until the peer closes the connection.
func receiveAll(from socket: Int32) throws -> Data {
  var received = Data()
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  while true {
    let count = recv(socket, &buffer, buffer.count, 0)
    if count < 0, errno == EINTR { continue }
    // If the connection is reset, what was received before is the response.
    if count < 0, received.isEmpty { throw SystemFailure("No answer") }
    if count <= 0 { return received }
    received += buffer[..<count]
  }
}

/// One request and its response, over a connection of its own.
struct HTTPExchange: Sendable {
  let method: String
  let path: String
  let body: Data?
  var headers: [String: String]

  struct Answer: Sendable {
    var status = 0
    var headers: [String: String] = [:]
    var body = Data()

    func decoded<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
      try JSONDecoder().decode(type, from: body)
    }
  }

  func perform(port: Int) throws -> Answer {
    let socket = try connectToLoopback(port: port)
    defer { close(socket) }
    var fields = ["Host": "127.0.0.1:\(port)", "Connection": "close"]
    if let body { (fields["Content-Type"], fields["Content-Length"]) = ("application/json", "\(body.count)") }
    fields.merge(headers) { _, own in own }
    let head = (["\(method) \(path) HTTP/1.1"] + fields.map { "\($0): \($1)" }).joined(separator: "\r\n")
    // A failure to send the body is ignored, since a server that rejects it need not read all of it.
    if sendAll(Data("\(head)\r\n\r\n".utf8), to: socket), let body { _ = sendAll(body, to: socket) }
    return try Self.parse(receiveAll(from: socket))
  }

  private static func parse(_ data: Data) throws -> Answer {
    guard let end = data.firstRange(of: Data("\r\n\r\n".utf8)) else {
      throw SystemFailure("Half an answer", EPROTO)
    }
    let lines = String(decoding: data[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
    var answer = Answer(body: Data(data[end.upperBound...]))
    answer.status = lines[0].split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
    for line in lines.dropFirst() {
      guard let colon = line.firstIndex(of: ":") else { continue }
      answer.headers[line[..<colon].lowercased()] =
        line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces)
    }
    return answer
  }
}

/// Sends all of the bytes. Returns false if the connection does not accept them.
func sendAll(_ data: Data, to socket: Int32) -> Bool {
  #if canImport(Darwin)
    let flags: Int32 = 0
  #else
    let flags = Int32(MSG_NOSIGNAL)
  #endif
  return data.withUnsafeBytes { bytes in
    var sent = 0
    while sent < bytes.count {
      let count = send(socket, bytes.baseAddress?.advanced(by: sent), bytes.count - sent, flags)
      if count < 0, errno == EINTR { continue }
      if count <= 0 { return false }
      sent += count
    }
    return true
  }
}
