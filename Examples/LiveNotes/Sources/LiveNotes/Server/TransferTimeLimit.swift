import Hummingbird
import NIOCore
import NIOHTTPTypes

/// Disconnects a client whose request arrives too slowly, or that reads an answer too slowly.
///
/// The server's limit for idle connections does not: it begins again with each byte of a request, and ends with the request. A stream of
/// events has no end, and a limit of its own for subscribers that do not read.
final class TransferTimeLimit: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPRequestPart
  typealias InboundOut = HTTPRequestPart
  typealias OutboundIn = HTTPResponsePart
  typealias OutboundOut = HTTPResponsePart

  private let limit: TimeAmount
  private var requestDeadline: Scheduled<Void>?
  private var answerDeadline: Scheduled<Void>?
  /// The number of requests whose answers have not ended.
  private var unanswered = 0
  private var isStreaming = false

  /// - Parameter limit: For each request, from its first line to its end, and for each answer: until it begins, and until it ends.
  init(_ limit: TimeAmount) { self.limit = limit }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head:
      unanswered += 1
      begin(&requestDeadline, context)
    case .body: break
    case .end:
      end(&requestDeadline)
      // Otherwise nothing would limit an answer that cannot begin, because an earlier one is not read.
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
      // This comes only when most of what is in front of it has been sent.
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
