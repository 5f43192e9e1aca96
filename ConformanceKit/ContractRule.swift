/// A rule of the contract that every storage engine follows.
///
/// The raw value is the identifier of the rule, such as `W2`. ``summary`` states the rule.
public enum ContractRule: String, CaseIterable, Sendable, Codable {
  // Keys
  /// Valid keys.
  case k1 = "K1"
  /// Comparison of keys.
  case k2 = "K2"
  /// Listing keys.
  case k3 = "K3"
  /// Keys never lead outside the engine's place.
  case k4 = "K4"

  // Values
  /// Empty values.
  case v1 = "V1"
  /// Arbitrary bytes, and the maximum size of a value.
  case v2 = "V2"
  /// Returned data belongs to the caller.
  case v3 = "V3"

  // Writing
  /// Reads return what was written.
  case w1 = "W1"
  /// Timestamps.
  case w2 = "W2"
  /// Repeated keys and empty batches.
  case w3 = "W3"
  /// Atomicity of batches.
  case w4 = "W4"
  /// The order within a batch.
  case w5 = "W5"
  /// Durability of writes.
  case w6 = "W6"

  // Reading
  /// Reads of absent keys.
  case r1 = "R1"
  /// Reads of many keys.
  case r2 = "R2"
  /// Reads of everything.
  case r3 = "R3"
  /// Failures are never silent.
  case r4 = "R4"
  /// Scans.
  case r5 = "R5"
  /// The order of entries.
  case r6 = "R6"

  // Removing and counting
  /// Removing absent keys.
  case d1 = "D1"
  /// Removing everything.
  case d2 = "D2"
  /// Which of many keys exist.
  case l1 = "L1"
  /// The number of keys.
  case l2 = "L2"

  // Concurrency
  /// Linearizability.
  case c1 = "C1"
  /// Two engines on one place in one process.
  case c2 = "C2"
  /// Two processes on one place.
  case c3 = "C3"
  /// Cancelled calls.
  case c4 = "C4"
  /// Neither waits nor long calls hold up other tasks.
  case c5 = "C5"
  /// A place that is deleted, moved or replaced while an engine has it open.
  case c6 = "C6"

  // Opening and closing
  /// Opening creates directories.
  case o1 = "O1"
  /// Opening an unusable place.
  case o2 = "O2"
  /// Closing.
  case o3 = "O3"
  /// Dropping the last reference.
  case o4 = "O4"
  /// File permissions, and planted files.
  case o5 = "O5"
  /// The cost of opening.
  case o6 = "O6"

  // Faults
  /// A full disk.
  case f1 = "F1"
  /// Corrupted files.
  case f2 = "F2"
  /// Read-only media.
  case f3 = "F3"
  /// System calls that fail in the middle of a call.
  case f4 = "F4"

  // Transactions
  /// Serializability of transactions.
  case t1 = "T1"
  /// Transactions read their own writes.
  case t2 = "T2"
  /// Transactions whose body throws.
  case t3 = "T3"
  /// How often a body runs, and use of a transaction after its end.
  case t4 = "T4"
  /// Long transaction bodies.
  case t5 = "T5"

  // Changes
  /// Which changes a feed covers.
  case x1 = "X1"
  /// When a reported change can be read.
  case x2 = "X2"
  /// Merged elements, and silence while nothing changes.
  case x3 = "X3"
  /// Slow subscribers, and those that have ended.
  case x4 = "X4"
  /// How a feed ends, and gaps in it.
  case x5 = "X5"

  // Networks
  /// A server that is unreachable, slow or silent.
  case n1 = "N1"
  /// Connections that are lost in the middle of a call.
  case n2 = "N2"
  /// Servers that come back.
  case n3 = "N3"
  /// Failover of a replicated server.
  case n4 = "N4"
  /// Credentials, permissions and certificates.
  case n5 = "N5"
  /// The number of connections.
  case n6 = "N6"

  // The Store in front of an engine
  /// Concurrent calls of a store.
  case s1 = "S1"
  /// Failed calls of a store.
  case s2 = "S2"
  /// Chained calls of a store.
  case s3 = "S3"
  /// The order of a store's items.
  case s4 = "S4"
  /// The events of a store.
  case s5 = "S5"
  /// Items that cannot be decoded.
  case s6 = "S6"
  /// The cost of one item.
  case s7 = "S7"
  /// Identifiers of items.
  case s8 = "S8"
  /// Several stores on one place.
  case s9 = "S9"
  /// Updating one item.
  case s10 = "S10"
}

extension ContractRule: CustomStringConvertible {
  /// The identifier of the rule.
  public var description: String { rawValue }

  /// Whether the rule is about a store in front of an engine.
  package var isForStores: Bool { rawValue.hasPrefix("S") }

  /// The rule, in one or two sentences.
  public var summary: String {
    switch self {
    case .k1:
      "A key has 1 to 511 bytes of UTF-8. With any other key, every method throws invalidKey and writes "
        + "nothing."
    case .k2:
      "Keys are compared byte for byte: case, spaces, composed and decomposed accents, NUL, slashes and dots "
        + "are all allowed and all significant."
    case .k3: "allKeys() returns the keys that were written, byte for byte, each once."
    case .k4: "No key makes an engine read, write or remove anything outside its place."
    case .v1: "An empty value is a value, and differs from absent."
    case .v2:
      "Any bytes are returned as written, up to at least 64 MiB. A value too large for the engine throws "
        + "valueTooLarge and leaves the entry as it was."
    case .v3: "Returned data starts at index 0 and stays unchanged after later writes, removals and close()."
    case .w1:
      "A read after an acknowledged write returns exactly that value; a second write replaces the whole "
        + "value."
    case .w2:
      "createdAt is when the key went from absent to present, and updatedAt when it was last written, even "
        + "with the same value; both are within 2 ms of the call. createdAt is never later than updatedAt, "
        + "and updatedAt never moves backwards."
    case .w3: "In a batch, the last entry for a key wins. An empty batch does nothing."
    case .w4:
      "A batch of any size is all or nothing: after errors, after crashes and for every concurrent reader. "
        + "One invalid key rejects the whole batch."
    case .w5: "apply(_:) performs writes, removals and removeAll in the given order, as one batch."
    case .w6:
      "An acknowledged write survives a crash of the process and, with durableWrites, of the machine. "
        + "Without durableWrites, a crash of the machine may lose the last batches, each as a whole."
    case .r1: "Absent is nil, not an error."
    case .r2:
      "A read of any number of keys returns them in the order of the request, omits absent keys and returns "
        + "a repeated key each time."
    case .r3:
      "A read of everything contains each entry once. With snapshotReads, one call returns one snapshot."
    case .r4: "A read that fails throws; it never returns nil or an empty array instead."
    case .r5:
      "scan returns entries in ascending byte order of their keys, within a prefix or range and up to a "
        + "limit. With orderedScans it loads no more than it returns."
    case .r6: "readAllEntries() returns entries in the order in which their keys were first written."
    case .d1: "Removing an absent key does nothing and does not throw."
    case .d2:
      "removeAllData() leaves an empty, usable engine and removes nothing that the engine did not put there."
    case .l1: "keysExist(_:) returns the keys of the request that exist, in the order of the request."
    case .l2: "keyCount() equals the number of keys in allKeys()."
    case .c1:
      "Any number of tasks may call any method, and every call takes effect at one moment between its start "
        + "and its end."
    case .c2:
      "Two engines on one place in one process see each other's acknowledged writes, or the second open "
        + "throws locked."
    case .c3:
      "With multiProcess, two processes on one place see each other's acknowledged writes, or the second "
        + "open throws locked; without it, the second open throws locked."
    case .c4:
      "A cancelled call has done all of its work or none. It throws CancellationError only if none."
    case .c5:
      "Waiting for a disk or a network never blocks a thread of Swift's cooperative pool. While every "
        + "processor reads everything in a loop, a write still gets its turn within a second."
    case .c6:
      "An engine whose place is deleted, moved or replaced acknowledges nothing that a newly opened engine "
        + "would not see, returns nothing that is no longer there, and does no harm to engines that have "
        + "opened the place since."
    case .o1: "Opening creates missing directories."
    case .o2:
      "Opening an unusable place throws a StorageError that names the path and the cause, and leaves the "
        + "place untouched."
    case .o3:
      "close() waits for calls in progress, may be called twice, and makes every later call throw closed. An "
        + "engine whose data ends with it may use the default close(), which does nothing."
    case .o4: "Releasing the last reference releases every lock and file descriptor, with or without close()."
    case .o5:
      "Only the owner may access files and directories (0600, 0700), unless the engine is configured "
        + "otherwise. Nothing planted in the place makes the engine write elsewhere or hang, and a user with "
        + "only read access can hold it up for at most a minute."
    case .o6: "Opening a place with a million entries costs no more than opening one with a thousand."
    case .f1:
      "On a full disk, a write throws diskFull and leaves no trace, existing entries stay readable, and "
        + "writing works again once there is space."
    case .f2:
      "With corrupted files, opening or the first use throws corrupted, and never traps or empties the "
        + "store. verify() also finds corruption that opening does not check for. With detectsCorruption, "
        + "corruption anywhere never yields wrong bytes."
    case .f3: "On read-only media, opening or writing throws readOnly or permissionDenied."
    case .f4:
      "If the system refuses something in the middle of a call, the call has no effect, all entries stay "
        + "readable and the engine stays usable."
    case .t1:
      "A transaction takes effect at one moment between its start and its end, as if nothing else ran: "
        + "isolated from other transactions, single calls and batches of every engine and process that "
        + "shares the place."
    case .t2: "The body of a transaction reads its own writes, in every kind of read."
    case .t3: "A body that throws changes nothing, and its error reaches the caller unchanged."
    case .t4:
      "A body may run more than once, and only its last run counts. A transaction throws when used after its "
        + "body has returned, and a write that it rejects does not end it."
    case .t5:
      "A long body blocks no thread of the cooperative pool and, with snapshotReads, no reader. Writers "
        + "proceed after it."
    case .x1:
      "Every change acknowledged after changes() has returned is covered by an element that names its keys "
        + "or says everything, whether this engine, another one on the same place or another process made it."
    case .x2: "After receiving an element, a subscriber reads the change it covers, or a later state."
    case .x3:
      "Elements may be merged but are never lost. While nothing changes in a place, there are none."
    case .x4:
      "A subscriber that does not read takes a bounded amount of memory and blocks no one. One that has "
        + "ended costs nothing."
    case .x5:
      "close() ends the streams of its engine and no others. Changes that could not be observed for a while "
        + "are covered by one element for everything."
    case .n1:
      "A server that is unreachable, slow or silent blocks no call for longer than its time limit: the call "
        + "throws unavailable, and nothing has happened. Cancelling a waiting call ends it at once."
    case .n2:
      "After a connection is lost in the middle of a call, a read is retried, and a write has happened "
        + "exactly once if the call returns and not at all if it throws. outcomeUnknown is thrown only if "
        + "the outcome cannot be determined."
    case .n3:
      "Once the server is back, or another has replaced it, the same engine works again by itself."
    case .n4: "A failover of a server that replicates synchronously loses nothing acknowledged."
    case .n5:
      "Wrong credentials, a missing permission or an invalid certificate throw permissionDenied with the "
        + "cause. No error text, log or description contains a password."
    case .n6:
      "One engine uses a bounded number of connections, regardless of the number of tasks."
    case .s1:
      "Concurrent calls lose nothing: afterwards the items and the engine agree, as after some order of the "
        + "calls."
    case .s2: "A call that throws leaves the items and the engine as they were."
    case .s3:
      "A chain that ends with run() is one batch in the engine and one observable change of the items. "
        + "Without run() nothing happens, and a second run() does nothing."
    case .s4:
      "Items are in insertion order, inserting an existing identifier replaces the item in place, and a "
        + "restart changes neither."
    case .s5:
      "Every subscriber receives each event once, in the order in which the changes took effect, and a slow "
        + "subscriber blocks no one."
    case .s6:
      "An entry that cannot be decoded hides no other item, is reported with its key, and is not deleted."
    case .s7: "The cost of inserting or replacing one item does not grow with the number of items."
    case .s8: "Identifiers of any length and content work."
    case .s9:
      "Stores on one place converge: once no call is in progress, all have the same items in the same order, "
        + "including changes by others."
    case .s10:
      "update reads, changes and writes an item as one step, so no concurrent change is lost."
    }
  }
}
