/// The requirements on the items of a store: a value that can be encoded and sent between threads.
public typealias StorableItem = Codable & Sendable
