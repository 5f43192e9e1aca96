import Hummingbird
import NIOCore
import NIOHTTPTypes

/// Disconnects a client that sends a request or reads a response too slowly.
///
/// The server's limit for idle connections does not: it restarts with each byte of a request, and ends with the
/// request. Streams of events are exempt: they have no end, and ``PanelService`` disconnects subscribers that do not
/// read.
final class TransferTimeLimit: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPRequestPart
  typealias InboundOut = HTTPRequestPart
  typealias OutboundIn = HTTPResponsePart
  typealias OutboundOut = HTTPResponsePart

  private let limit: TimeAmount
  private var requestDeadline: Scheduled<Void>?
  private var answerDeadline: Scheduled<Void>?
  /// The number of requests whose responses have not ended.
  private var unanswered = 0
  private var isStreaming = false

  /// - Parameter limit: The maximum time of a request from its head to its end, of the wait for a response, and of a
  ///   response from its head to its end.
  init(_ limit: TimeAmount) { self.limit = limit }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head:
      unanswered += 1
      begin(&requestDeadline, context)
    case .body: break
    case .end:
      end(&requestDeadline)
      // For a response that cannot begin because the client does not read an earlier one.
      if unanswered > 0, !isStreaming, answerDeadline == nil { begin(&answerDeadline, context) }
    }
    context.fireChannelRead(data)
  }

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    switch unwrapOutboundIn(data) {
    case .head(let head):
      isStreaming = head.headerFields[.contentType] == "text/event-stream"
      if isStreaming { end(&answerDeadline) } else { begin(&answerDeadline, context) }
    case .body: break
    case .end:
      // The end is written only after most of the response has been sent.
      isStreaming = false
      unanswered -= 1
      if unanswered > 0 { begin(&answerDeadline, context) } else { end(&answerDeadline) }
    }
    context.write(data, promise: promise)
  }

  func channelInactive(context: ChannelHandlerContext) {
    endAll()
    context.fireChannelInactive()
  }

  func handlerRemoved(context: ChannelHandlerContext) { endAll() }

  private func begin(_ deadline: inout Scheduled<Void>?, _ context: ChannelHandlerContext) {
    end(&deadline)
    let channel = context.channel
    deadline = context.eventLoop.scheduleTask(in: limit) { channel.close(mode: .all, promise: nil) }
  }

  private func end(_ deadline: inout Scheduled<Void>?) {
    deadline?.cancel()
    deadline = nil
  }

  private func endAll() {
    end(&requestDeadline)
    end(&answerDeadline)
  }
}
