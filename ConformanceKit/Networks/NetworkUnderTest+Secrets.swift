#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Descriptions and errors of an engine while its server is unreachable: rule N5.

extension NetworkUnderTest {
  /// A way to open an engine with a secret.
  private struct Opening: Sendable {
    let what: String
    let secret: String
    let makeEngine: @Sendable (_ directory: URL, _ port: UInt16) async throws -> any StorageEngine
  }

  private var openings: [Opening] {
    let refused = server.refusals.compactMap { refusal in
      refusal.secret.map {
        Opening(what: "with \(refusal.reason)", secret: $0, makeEngine: refusal.makeEngine)
      }
    }
    guard let secret = server.secret else { return refused }
    return [Opening(what: "with what the server accepts", secret: secret, makeEngine: server.makeEngine)]
      + refused
  }

  /// Searches for the secret in the description of an engine, in the errors of its calls, and in the errors
  /// of opening.
  func checkSecretsWhileAway() async throws {
    let openings = openings
    if openings.isEmpty {
      throw Skip(reason: "The suite has no secret of the server (see ConformanceServer).")
    }
    try await untilAvailable { try await $0.write(data("old"), key: key("old")) }
    proxy.set(.away)
    if let secret = server.secret { try await checkCalls(secret) }
    context.noteProgress()
    // A server that accepts connections and ends them, and a port where none listens.
    let (listener, unusedPort) = try NetworkSocket.listen()
    NetworkSocket.close(listener)
    for port in [proxy.port, unusedPort] {
      try await gather(openings.indices) { try await check(openings[$0], port) }
      context.noteProgress()
    }
    proxy.set(.open)
    if let secret = server.secret { try await checkErrorsOfCalls(secret) }
  }

  private func checkCalls(_ secret: String) async throws {
    try expectNone(of: try engine.selfDescriptions, contains: secret, "the description of an engine")
    let calls = NetworkCall.allCases.filter { context.capabilities.isSuperset(of: $0.needs) }
    let errors = try await gather(calls.indices) { [engine] number in
      await thrown(by: { try await calls[number].perform(on: engine) })
    }
    for (call, error) in zip(calls, errors) {
      try expectNone(
        of: texts(of: error), contains: secret,
        "while the server was unreachable, the error of \(call.phrase)")
    }
  }

  private func check(_ opening: Opening, _ port: UInt16) async throws {
    let engine: any StorageEngine
    do {
      engine = try await opening.makeEngine(context.place, port)
    } catch {
      return try expectNone(
        of: texts(of: error), contains: opening.secret, "\(opening.what) and no server, the error of opening")
    }
    // An engine may only connect when it is first used.
    let errors = [
      await thrown(by: { _ = try await engine.read(key: key("k")) }),
      await thrown(by: { try await engine.close() }),
    ]
    try expectNone(
      of: ["\(engine)", String(reflecting: engine)], contains: opening.secret,
      "\(opening.what) and no server, the description of the engine")
    for error in errors {
      try expectNone(
        of: texts(of: error), contains: opening.secret, "\(opening.what) and no server, an error")
    }
  }

  /// The error of the call, or nil. Rule N1 covers whether it may throw or return.
  private func thrown(by call: () async throws -> Void) async -> (any Error)? {
    do {
      try await call()
      return nil
    } catch {
      return (error as? CallFailure)?.error ?? error
    }
  }

  /// The texts of an error and of its causes.
  private func texts(of error: (any Error)?) -> [String] {
    guard let error else { return [] }
    let causes = (error as? StorageError).map { texts(of: $0.underlying) } ?? []
    return ["\(error)", String(reflecting: error)] + causes
  }

  /// Fails if the error of a call of an engine that the server accepts contains the secret.
  func expectNoSecret(in failure: CallFailure) throws {
    guard let secret = server.secret else { return }
    guard texts(of: failure.error).contains(where: { $0.contains(secret) }) else { return }
    throw Violation("the error of \(failure.call) contained the secret", rule: .n5)
  }

  /// Searches for the secret in errors that do not depend on the network.
  private func checkErrorsOfCalls(_ secret: String) async throws {
    let other = try await untilAvailable { _ in try await openAnother() }
    var errors = [await thrown(by: { try await other.write(Data(), key: key("")) })]
    try await other.close()
    for method in ReadMethod.allCases {
      errors.append(await thrown(by: { _ = try await method.found(of: [key("old")], in: other) }))
    }
    for error in errors {
      try expectNone(
        of: texts(of: error), contains: secret, "the error of an invalid call, or after close(),")
    }
    other.release()
  }

  private func expectNone(of texts: [String], contains secret: String, _ what: String) throws {
    // The message must not repeat the secret either.
    if texts.contains(where: { $0.contains(secret) }) { throw Violation("\(what) contained the secret") }
  }

  // MARK: - Refusals

  func check(_ refusal: ConformanceServer.Refusal) async throws {
    var error = try await self.error(of: refusal)
    // On a busy machine the time limit may expire before the server has refused the engine.
    for _ in 0..<10 where error.code == .unavailable && refusal.code != .unavailable {
      context.noteProgress()
      error = try await self.error(of: refusal)
    }
    try expect(error.code == refusal.code, "with \(refusal.reason), opening threw \(error)")
    guard let secret = refusal.secret else { return }
    try expectNone(of: texts(of: error), contains: secret, "with \(refusal.reason), the error")
  }

  /// The error that the engine throws when it is opened or first used.
  private func error(of refusal: ConformanceServer.Refusal) async throws -> StorageError {
    do {
      let engine = try await refusal.makeEngine(context.place, proxy.port)
      _ = try await engine.read(key: key("k"))
    } catch let error as StorageError {
      return error
    } catch {
      throw Violation("with \(refusal.reason), opening threw \(shortened(String(describing: error)))")
    }
    throw Violation("with \(refusal.reason), the engine could be opened and read")
  }
}
