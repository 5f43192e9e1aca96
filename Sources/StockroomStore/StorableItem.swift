/// What can be stored: a value that can be encoded, and handed from one thread to another.
public typealias StorableItem = Codable & Sendable
