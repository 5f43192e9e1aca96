import Foundation
import Hummingbird
import NIOCore
import ServiceLifecycle

/// The stream of one subscriber: a snapshot of its panels, or the changes that it has missed, then all later changes.
struct EventStream: Sendable {
  let panels: Panels
  let chosen: Set<PanelName>
  /// The last event that the subscriber has received, if it reconnects.
  let lastEventID: String?
  let channel: any Channel
  /// The maximum size of a write, which bounds what is buffered for a subscriber that does not read.
  private static let chunk = 64 << 10

  func write(to writer: inout any ResponseBodyWriter) async throws {
    let feed = panels.feed
    let missed = lastEventID.flatMap(feed.number(ofEventID:))
    let start = missed ?? feed.last
    let subscription = feed.subscribe(after: start) { [channel] in
      channel.close(mode: .all, promise: nil)
    }
    // The maximum was reached after the check in `Routes`. The page reconnects.
    guard let subscriber = subscription else { return try await writer.finish(nil) }
    defer { feed.unsubscribe(subscriber) }

    // The delay of reconnection for clients that, unlike the page, leave it to `EventSource`: half a second.
    try await write([ByteBuffer(string: "retry: 500\n\n")], for: subscriber, to: &writer)
    if missed == nil {
      for panel in PanelName.allCases where chosen.contains(panel) {
        try await write(try await panels.snapshot(of: panel), for: subscriber, to: &writer)
      }
      // The first identifier: a subscriber that has received all snapshots can resume here. Changes since `start`
      // follow, even if they are in the snapshots.
      try await write([EventFeed.beat(id: feed.eventID(start))], for: subscriber, to: &writer)
    }
    try await withGracefulShutdownHandler {
      while let messages = await feed.next(for: subscriber, of: chosen) {
        try await write(messages, for: subscriber, to: &writer)
      }
    } onGracefulShutdown: {
      feed.close()
    }
    try await writer.finish(nil)
  }

  private func write(
    _ messages: [ByteBuffer], for subscriber: Int, to writer: inout any ResponseBodyWriter
  ) async throws {
    defer { panels.feed.isWriting(subscriber, false) }
    for var message in messages {
      while let part = message.readSlice(length: min(Self.chunk, message.readableBytes)),
        part.readableBytes > 0
      {
        panels.feed.isWriting(subscriber, true)
        try await writer.write(part)
      }
    }
  }
}
