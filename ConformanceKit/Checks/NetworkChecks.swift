#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// Engines that connect to a server: rules N1 to N6, and X5. A proxy between engine and server simulates faults of the
// network.

extension CheckDefinition {
  @CheckList static var networkChecks: [CheckDefinition] {
    for call in NetworkCall.allCases {
      Check(
        .n1, "network.away-\(call.rawValue)",
        "while the server is unreachable, \(call.phrase) throws unavailable within its time limit, and "
          + "nothing has happened",
        needs: call.needs.union(.networked)
      ) { context in
        try await context.throughProxy { try await $0.checkFault(.away, call) }
      }
      Check(
        .n1, "network.silent-\(call.rawValue)",
        "while the server is silent, \(call.phrase) throws within its time limit, blocks no thread of the "
          + "cooperative pool, and has happened or not", needs: call.needs.union(.networked)
      ) { context in
        try await context.throughProxy { try await $0.checkFault(.silent, call) }
      }
      Check(
        .n1, "network.cancelled-\(call.rawValue)",
        "\(call.phrase) that waits for a silent server, or for a connection to it, ends when it is cancelled",
        needs: call.needs.union(.networked)
      ) { context in
        try await context.throughProxy {
          try await $0.checkCancellation(call)
          if call == .read { try await $0.checkAnswersBehindCancelledRead() }
        }
      }
    }
    for call in [NetworkCall.read, .readAll, .write] {
      Check(
        .n1, "network.stalled-\(call.rawValue)",
        "\(call.phrase) throws within its time limit when the server stops in the middle of its answer",
        needs: .networked
      ) { context in
        try await context.throughProxy { try await $0.checkFault(.stalling(after: 1), call) }
      }
    }
    for (name, mode, what) in [
      ("away", NetworkProxy.Mode.away, "away"), ("unreachable", .unreachable, "unreachable"),
      ("silent", .silent, "silent, and so does a write of 8 MiB"),
      ("stalled", .stalling(after: 1), "silent in the middle of its answers"),
    ] {
      Check(
        .n1, "network.\(name)-any-call",
        "every read, every removal, verify() and changes() end within the time limit while the server is \(what)",
        needs: .networked
      ) { context in
        try await context.throughProxy { try await $0.checkAnyCall(mode) }
      }
    }
    Check(
      .n1, "network.trickling-any-call",
      "every read, every removal, verify() and changes() end within the time limit while answers arrive slowly, "
        + "one byte after the other", needs: .networked
    ) { context in
      // An answer of four bytes takes as long as the time limit.
      try await context.throughProxy {
        try await $0.checkAnyCall(.trickling(pause: $0.server.timeLimit / 4))
      }
    }
    Check(
      .n1, "network.cancelled-any-call",
      "every read, every removal, verify(), changes(), a write of 8 MiB and opening end when they are cancelled "
        + "while the server is silent", needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkAnyCancellation() }
    }
    Check(
      .n1, "network.silent-crowd",
      "while the server is silent, each of many more calls than there are connections ends within its time limit",
      needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkSilentCrowd() }
    }
    Check(
      .n1, "network.silent-in-a-body",
      "a transaction throws within its time limit when the server becomes silent while its body runs, and has "
        + "happened or not", needs: [.networked, .transactions]
    ) { context in
      try await context.throughProxy { try await $0.checkSilentBody() }
    }
    Check(
      .n1, "network.cancelled-in-a-body",
      "a transaction ends when it is cancelled while its body waits for a silent server",
      needs: [.networked, .transactions]
    ) { context in
      try await context.throughProxy { try await $0.checkCancelledBody() }
    }
    for call in [NetworkCall.read, .write] {
      Check(
        .n1, "network.unreachable-\(call.rawValue)",
        "while connection attempts are not answered, \(call.phrase) throws within its time limit, and "
          + "nothing has happened",
        needs: .networked
      ) { context in
        try await context.throughProxy { try await $0.checkFault(.unreachable, call) }
      }
      Check(
        .n1, "network.unreachable-cancelled-\(call.rawValue)",
        "while connection attempts are not answered, \(call.phrase) that waits for a connection ends when it "
          + "is cancelled",
        needs: .networked
      ) { context in
        try await context.throughProxy { try await $0.checkCancellation(call, .unreachable) }
      }
    }
    for (name, mode) in [("silent", NetworkProxy.Mode.silent), ("unreachable", .unreachable)] {
      Check(
        .n1, "network.\(name)-opening",
        "while the server is \(name), an engine opens and closes, or throws unavailable, within its time "
          + "limit",
        needs: .networked
      ) { context in
        try await context.throughProxy { try await $0.checkOpening(mode) }
      }
    }
    Check(
      .n2, "network.cut-anywhere",
      "wherever the connection is cut, a call that returned has happened once, one that threw has not "
        + "happened, and only one that threw outcomeUnknown may have happened or not",
      needs: .networked
    ) { context in
      try await context.withServer { try await CutSearch(context, $0).run() }
    }
    Check(
      .n2, "network.cut-any-read",
      "a read whose connection is cut in the middle of the answer returns the whole answer, or throws unavailable",
      needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkCutReads() }
    }
    Check(
      .n2, "network.cut-under-load",
      "while the connections of many tasks are cut repeatedly, each acknowledged change is made once, and no "
        + "change is made late",
      needs: .networked
    ) { context in
      try await context.throughProxy {
        try await $0.checkLoad(rounds: context.networkRounds) { $0.proxy.endConnections() }
      }
    }
    Check(
      .n2, "network.cut-in-a-body",
      "a transaction whose connection is cut while its body runs does all of its work and undoes no other change, or "
        + "does nothing and throws", needs: [.networked, .transactions]
    ) { context in
      try await context.throughProxy { try await $0.checkCutBody() }
    }
    Check(
      .n2, "network.pool-of-lost-connections",
      "a read succeeds after the server has ended all connections of the engine, as long as the server is "
        + "reachable",
      needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkReadsAfterLosses() }
    }
    Check(
      .n3, "network.server-restarts",
      "after the server of many tasks was killed and started again, nothing acknowledged is lost, and the "
        + "same engine works again by itself", needs: .networked, killsServer: true
    ) { context in
      try await context.throughProxy { network in
        try await network.checkLoad(rounds: context.networkRounds) {
          try await $0.server.kill()
          try await $0.server.start()
        }
        try await network.expectEveryCallWorks()
      }
    }
    Check(
      .n3, "network.half-open",
      "connections on which nothing arrives any more are replaced while the server is reachable, and the same "
        + "engine works again by itself", needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkHalfOpenConnections() }
    }
    Check(
      .n4, "network.failover",
      "after a failover during calls of many tasks, nothing acknowledged is lost, and missed and later "
        + "changes are covered for subscribers",
      needs: .networked, killsServer: true
    ) { context in
      try await context.throughProxy { network in
        guard let failOver = network.server.failOver else {
          throw Skip(reason: "The suite has no server for a failover (see ConformanceServer).")
        }
        let hasFeed = context.capabilities.contains(.changeFeed)
        let feed = hasFeed ? try await FailoverFeed(network) : nil
        try await network.checkLoad(rounds: 1) { network in
          feed?.loseServer()
          let address = try await failOver()
          network.proxy.target(address)
          network.proxy.endConnections()
          try await feed?.findServer(at: address)
        }
        try await feed?.check()
      }
    }
    Check(
      .n1, "network.dripping",
      "data that arrives one byte at a time is read correctly by every method, and by feeds",
      needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkDripping() }
    }
    Check(
      .n5, "network.refused",
      "an engine that the server refuses throws the cause when it is opened, and never a secret",
      needs: .networked
    ) { context in
      try await context.throughProxy { network in
        if network.server.refusals.isEmpty {
          throw Skip(
            reason: "The suite has no refusals of the server (see ConformanceServer).")
        }
        for refusal in network.server.refusals { try await network.check(refusal) }
      }
    }
    Check(
      .n5, "network.away-secrets",
      "while the server is unreachable, neither the description of an engine nor an error contains a secret",
      needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkSecretsWhileAway() }
    }
    Check(
      .n6, "network.connections-are-bounded",
      "a thousand tasks and a hundred subscribers share a bounded number of connections, and none starves",
      needs: .networked
    ) { context in
      try await context.throughProxy { network in
        let limit = network.server.maximumConnections
        let subscribers = try await network.subscribe(100)
        defer { withExtendedLifetime(subscribers) {} }
        try await gather(0..<1_000) { number in
          // An engine that never closes connections would otherwise use all descriptors of this process.
          guard network.proxy.mostConnections <= limit else { return }
          let key = key("key-\(number)")
          try await network.untilAvailable { try await $0.write(data("v"), key: key) }
          try await network.untilAvailable { _ = try await $0.read(key: key) }
          network.context.noteProgress()
          if number.isMultiple(of: 10) {
            try await network.untilAvailable { _ = try await $0.readAllDataAndKeys() }
          }
        }
        let most = network.proxy.mostConnections
        try expect(
          most <= limit,
          "there were \(most) connections at the same time, and the maximum is \(limit)")
        try await network.checkConnectionsOfAnyCall()
      }
    }
    Check(
      .n6, "network.cancelled-calls-leave-no-connections",
      "calls that are cancelled while the server is silent leave no connections behind", needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkConnectionsOfCancelledCalls() }
    }
    Check(
      .n6, "network.lost-connections-are-closed",
      "connections that the server has ended or refused are closed, and leave no descriptors behind",
      needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkLostConnectionsAreClosed() }
    }
    Check(
      .n6, "network.silent-connections-are-closed",
      "calls that time out because the server is silent leave no connections behind", needs: .networked
    ) { context in
      try await context.throughProxy { try await $0.checkSilentConnectionsAreClosed() }
    }
    Check(
      .x5, "network.changes-after-cuts",
      "changes by others while the connection of a feed is cut are covered, and so are later ones",
      needs: [.networked, .changeFeed]
    ) { context in
      try await context.throughProxy { try await $0.checkChanges() }
    }
    Check(
      .x5, "network.changes-after-a-restart",
      "after the server was killed, changes by others before the feed has reconnected are covered, and so "
        + "are later ones",
      needs: [.networked, .changeFeed], killsServer: true
    ) { context in
      try await context.throughProxy { network in
        try await network.checkChanges {
          try await network.server.kill()
          try await network.server.start()
        }
      }
    }
  }
}
