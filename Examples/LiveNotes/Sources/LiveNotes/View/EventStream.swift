import Foundation
import Hummingbird
import NIOCore
import ServiceLifecycle

/// The stream of one subscriber: first what its panels show, or what it has missed, and then every change.
struct EventStream: Sendable {
  let panels: Panels
  let chosen: Set<PanelName>
  /// What the subscriber has got before, if it has been here.
  let lastEventID: String?
  let channel: any Channel
  /// Written at a time, so that no more than this waits for somebody who does not read.
  private static let chunk = 64 << 10

  func write(to writer: inout any ResponseBodyWriter) async throws {
    let feed = panels.feed
    let missed = lastEventID.flatMap(feed.number(ofEventID:))
    // Whatever comes while the snapshots are made comes after them too.
    let subscriber = feed.subscribe(after: missed ?? feed.last) { [channel] in
      channel.close(mode: .all, promise: nil)
    }
    defer { feed.unsubscribe(subscriber) }

    // Comes back soon after the connection was lost.
    try await write([ByteBuffer(string: "retry: 500\n\n")], for: subscriber, to: &writer)
    if missed == nil {
      for panel in PanelName.allCases where chosen.contains(panel) {
        try await write([try await panels.snapshot(of: panel).bytes], for: subscriber, to: &writer)
      }
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
    panels.feed.isWriting(subscriber, true)
    defer { panels.feed.isWriting(subscriber, false) }
    for var message in messages {
      while let part = message.readSlice(length: min(Self.chunk, message.readableBytes)),
        part.readableBytes > 0
      {
        try await writer.write(part)
      }
    }
  }
}
