/// A rule of the contract that every storage engine keeps.
///
/// The raw value is the rule's identifier, such as `W2`; ``summary`` says what it promises.
public enum ContractRule: String, CaseIterable, Sendable, Codable {
  // Keys
  /// What a key may be.
  case k1 = "K1"
  /// How keys are compared.
  case k2 = "K2"
  /// How keys are listed.
  case k3 = "K3"
  /// No key reaches out of the engine's place.
  case k4 = "K4"

  // Values
  /// The empty value.
  case v1 = "V1"
  /// Any bytes, up to 64 MiB and beyond.
  case v2 = "V2"
  /// What is returned belongs to the caller.
  case v3 = "V3"

  // Writing
  /// A read gives what was written.
  case w1 = "W1"
  /// Timestamps.
  case w2 = "W2"
  /// Repeated keys and empty batches.
  case w3 = "W3"
  /// A batch is all or nothing.
  case w4 = "W4"
  /// A batch is done in order.
  case w5 = "W5"
  /// Writes last.
  case w6 = "W6"

  // Reading
  /// Absent is nil.
  case r1 = "R1"
  /// Requests for many keys.
  case r2 = "R2"
  /// Reads of everything.
  case r3 = "R3"
  /// Failure is never silent.
  case r4 = "R4"
  /// Scans.
  case r5 = "R5"
  /// The order of entries.
  case r6 = "R6"

  // Removing and counting
  /// Removing what is absent.
  case d1 = "D1"
  /// Removing everything.
  case d2 = "D2"
  /// Which of many keys exist.
  case l1 = "L1"
  /// How many keys there are.
  case l2 = "L2"

  // Concurrency
  /// Many tasks.
  case c1 = "C1"
  /// Opened twice in one process.
  case c2 = "C2"
  /// Opened in two processes.
  case c3 = "C3"
  /// Cancelled calls.
  case c4 = "C4"
  /// Neither waiting nor a long call holds up other tasks.
  case c5 = "C5"
  /// A place that is deleted, moved or replaced under an open engine.
  case c6 = "C6"

  // Opening and closing
  /// Opening makes directories.
  case o1 = "O1"
  /// Opening on something unusable.
  case o2 = "O2"
  /// Closing.
  case o3 = "O3"
  /// Dropping the last reference.
  case o4 = "O4"
  /// Who may read and write the files, and planted files.
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
  /// What the system refuses in the middle of a call.
  case f4 = "F4"

  // Transactions
  /// Transactions take effect one after the other.
  case t1 = "T1"
  /// A transaction reads what it has written.
  case t2 = "T2"
  /// A transaction whose body throws.
  case t3 = "T3"
  /// When, and how often, a body runs.
  case t4 = "T4"
  /// Whom a long body holds up.
  case t5 = "T5"

  // Changes
  /// What a feed covers.
  case x1 = "X1"
  /// When a change can be read that a feed reports.
  case x2 = "X2"
  /// What a feed does not report.
  case x3 = "X3"
  /// Slow and departed subscribers.
  case x4 = "X4"
  /// How a feed ends.
  case x5 = "X5"

  // Networks
  /// A server that is away, slow or silent.
  case n1 = "N1"
  /// A connection that is lost in the middle of a call.
  case n2 = "N2"
  /// A server that comes back.
  case n3 = "N3"
  /// A failover of a server that replicates.
  case n4 = "N4"
  /// Users, rights and certificates.
  case n5 = "N5"
  /// How many connections there are.
  case n6 = "N6"

  // The Store in front of an engine
  /// Concurrent calls to a store.
  case s1 = "S1"
  /// Calls to a store that fail.
  case s2 = "S2"
  /// Chained calls to a store.
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
  /// Stores that others change too.
  case s9 = "S9"
  /// Updates of one item.
  case s10 = "S10"
}

extension ContractRule: CustomStringConvertible {
  /// The identifier of the rule.
  public var description: String { rawValue }

  /// Whether the rule is about what is in front of an engine.
  package var isForStores: Bool { rawValue.hasPrefix("S") }

  /// What the rule promises, in one or two sentences.
  public var summary: String {
    switch self {
    case .k1:
      "A key has 1 to 511 bytes of UTF-8; any other makes every method that takes it throw invalidKey, and "
        + "nothing is written."
    case .k2:
      "Keys are compared byte for byte: case, blanks, accents and how they are composed, NUL, slashes and dots "
        + "all count and are all allowed."
    case .k3: "allKeys() gives back the keys that were written, byte for byte, each once."
    case .k4: "No key makes an engine read, write or remove anything outside the place it was opened on."
    case .v1: "Zero bytes are a value, which is not the same as absent."
    case .v2:
      "Any bytes come back as they were written, and 64 MiB always fit; what is too large for the engine throws "
        + "valueTooLarge and leaves the entry as it was."
    case .v3: "Returned data starts at index 0 and never changes, whatever happens to the engine afterwards."
    case .w1: "A read after an acknowledged write gives just that value; a second write replaces all of it."
    case .w2:
      "createdAt is when the key went from absent to present and updatedAt when it was last written, if only with the "
        + "same value, both within 2 ms of the call; createdAt is never later, and updatedAt never moves backwards."
    case .w3: "In a batch a later entry for the same key wins; an empty batch does nothing."
    case .w4:
      "A batch of any size is all or nothing, after errors, after crashes and for every reader; one invalid key "
        + "anywhere rejects the whole batch."
    case .w5: "apply(_:) does writes, removals and removeAll in the order given, as one batch."
    case .w6:
      "An acknowledged write survives the death of the process and, with durableWrites, of the machine; without, that "
        + "may cost the last batches, each as a whole."
    case .r1: "Absent is nil, not an error."
    case .r2:
      "A read of many keys answers in the order of the request, leaves absent keys out and answers a repeated key "
        + "each time, however many keys there are."
    case .r3:
      "A read of everything has each entry once; with snapshotReads one call shows one snapshot."
    case .r4: "What cannot be read throws; neither nil nor an empty array ever means that something failed."
    case .r5:
      "scan gives entries in ascending byte order of keys, within a range and up to a limit; with orderedScans it "
        + "loads no more than it returns."
    case .r6: "readAllEntries() is in the order in which the keys were first written."
    case .d1: "Removing an absent key does nothing and does not throw."
    case .d2:
      "removeAllData() leaves an empty, usable engine and removes nothing that the engine did not put there."
    case .l1: "keysExist(_:) gives those keys of the request that exist, in the order of the request."
    case .l2: "keyCount() is the number of keys in allKeys()."
    case .c1:
      "Any number of tasks may call anything, and every call takes effect at one moment between its beginning and "
        + "its end."
    case .c2:
      "Opening one place twice in a process gives two engines that see each other's writes, or throws locked."
    case .c3:
      "Opening one place in two processes does the same with multiProcess; without it the second open throws "
        + "locked."
    case .c4:
      "A cancelled call has done all of its work or none, and throws CancellationError only if none."
    case .c5:
      "Waiting for a disk or a network never holds a thread of Swift's cooperative pool, and a write gets its turn "
        + "within a second while every processor reads everything in a loop."
    case .c6:
      "An engine whose place is deleted, moved or replaced acknowledges nothing that a new opening would not see, "
        + "returns nothing that is not there, and harms nobody who has opened the place since."
    case .o1: "Opening makes the directories that are missing."
    case .o2:
      "Opening on something unusable throws a StorageError that names the path and the cause, and touches nothing."
    case .o3:
      "close() waits for what is under way, may be called twice, and makes every later call throw closed; an engine "
        + "that keeps nothing beyond its own life may leave it to the default, which does nothing."
    case .o4: "Dropping the last reference releases every lock and file descriptor, closed or not."
    case .o5:
      "Files and directories belong to their owner alone (0600, 0700) unless the engine is configured otherwise; nothing "
        + "planted in the place makes it write elsewhere or hang, and who may only read holds it up for a minute at most."
    case .o6: "Opening costs no more with a million entries than with a thousand."
    case .f1:
      "On a full disk a write throws diskFull and leaves no trace; what was there stays readable, and writing "
        + "works again once there is room."
    case .f2:
      "Corrupted files make opening or the first use throw corrupted, and never empty the store; verify() finds what "
        + "opening does not look for, and with detectsCorruption a corrupted file never yields wrong bytes."
    case .f3: "On read-only media opening or writing throws readOnly or permissionDenied."
    case .f4:
      "What the system refuses in the middle of a call leaves the call undone, all entries readable and the engine "
        + "usable."
    case .t1:
      "A transaction takes effect at one moment between its beginning and its end, as if nothing else ran then, against other "
        + "transactions, single calls and batches of every engine and process that shares the place."
    case .t2: "The body of a transaction reads its own writes, in every kind of read."
    case .t3: "A body that throws changes nothing, and its error reaches the caller as it is."
    case .t4:
      "A body may run more than once, of which the last run counts; a transaction refuses to be used once its body has "
        + "returned, and a write that it refuses does not end it."
    case .t5:
      "A long body holds up no thread of the cooperative pool and, with snapshotReads, no reader; writers get their turn "
        + "after it."
    case .x1:
      "Every change that is acknowledged after changes() has returned is covered by an element, which names its keys or says "
        + "everything, whether this engine, another on the same place or another process has made it."
    case .x2: "After receiving an element, a subscriber reads the change it covers, or a later state."
    case .x3:
      "Elements may be merged, and are never missed; while nothing changes in a place, there are none."
    case .x4:
      "A subscriber that does not read costs a bounded amount of memory and holds nobody up, and one that has gone costs "
        + "nothing."
    case .x5:
      "close() ends the streams of the engine and no others; what could not be watched for a while is covered by one element "
        + "for everything."
    case .n1:
      "A server that is away, slow or silent blocks no call for longer than its time limit: it throws unavailable, and nothing "
        + "has happened; cancelling a waiting call ends it at once."
    case .n2:
      "A connection lost in the middle of a call: a read is done again; a write has happened exactly once if the call returns, not "
        + "at all if it throws, and outcomeUnknown is thrown only where nobody can find out."
    case .n3:
      "Once the server is back, or another has taken its place, the same engine works again by itself."
    case .n4: "Nothing acknowledged is lost in a failover of a server that replicates synchronously."
    case .n5:
      "Wrong credentials, a missing right or a certificate that does not fit throw permissionDenied with the cause, and a "
        + "password is in no error."
    case .n6:
      "One engine has a bounded number of connections, whatever the number of tasks."
    case .s1: "Concurrent calls lose nothing: afterwards the items and the engine agree."
    case .s2: "A call that throws leaves the items and the engine as they were."
    case .s3:
      "A chain ended by run() is one batch in the engine and one change of the items; without run() nothing "
        + "happens, and a second run() does nothing."
    case .s4:
      "Items are in the order of insertion, an item that comes again stays in its place, and a restart changes "
        + "neither."
    case .s5: "Every subscriber learns what happened, once, in the order in which it took effect."
    case .s6: "An entry that cannot be decoded hides no other, is reported with its key, and is not deleted."
    case .s7: "The cost of inserting or replacing one item does not grow with the number of items."
    case .s8: "Identifiers of any length and content work."
    case .s9:
      "Stores in front of one place show the same items in the same order once nothing is under way, also those that others changed."
    case .s10:
      "update reads, changes and writes an item as one step, so that no concurrent change is lost."
    }
  }
}
