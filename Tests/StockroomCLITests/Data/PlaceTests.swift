import ArgumentParser
import Foundation
import Testing

@testable import StockroomCLI

@Suite("Places on the command line") struct PlaceTests {
  @Test(
    "A path is taken as it is written, and that of a URL is decoded",
    arguments: [
      ("sqlite:notes", "notes"), ("SQLite:notes", "notes"), ("sqlite:a b%20c", "a b%20c"),
      ("sqlite:./a:b", "./a:b"), ("sqlite:/a", "/a"), ("sqlite:///a%20b%25", "/a b%"),
      ("sqlite:///a b", "/a b"),
      ("sqlite: x ", " x "), ("sqlite:a?b#c", "a?b#c"), ("sqlite:~x", "~x"),
      ("sqlite:~/x", "\(NSHomeDirectory())/x"),
    ])
  func paths(text: String, path: String) throws {
    guard case .local(.sqlite, path) = try Place(text) else {
      Issue.record("\(try Place(text))")
      return
    }
  }

  @Test("A path that begins with a tilde and a name is in the current directory, in every option")
  func tilde() async throws {
    try await withTemporaryDirectory { directory in
      func run(_ arguments: String...) async throws {
        let output = try await CommandLineTool.run(arguments, by: "cd '\(directory.path)' && \"$@\"")
        #expect(output.status == 0, "\(arguments): \(output.standardError)")
      }
      for engine in DataPlace.engines {
        try await run("put", "\(engine):~\(engine)", "--create", "k", "--value", "1")
        try await run("get", "\(engine):~\(engine)", "k")
      }
      try await run("put", "sqlite:~file.sqlite3", "--create", "k", "--value", "1")
      try await run("dump", "lmdb:~lmdb", "--to", "~archive")
      try await run("restore", "~archive", "--to", "lmdb:~restored")
      try await run("backup", "lmdb:~lmdb", "--to", "~backup")
      try await run("put", "lmdb:~lmdb", "archive", "--file", "~archive")
      try await run(
        "bench", "--engine", "memory", "--entries", "10", "--repetitions", "1", "--workload", "count",
        "--directory", "~scratch", "--html", "~page.html")
      let made =
        DataPlace.engines + ["file.sqlite3", "archive", "restored", "backup", "scratch", "page.html"]
      let there = Set(try contents(of: directory))
      #expect(there.isSuperset(of: made.map { "~" + $0 }), "\(there)")
    }
  }

  @Test(
    "An SQLite place is a directory or a file",
    arguments: [
      ("notes", "notes", "data"), ("notes/x.sqlite3", "notes/", "x"), ("x.sqlite3", ".", "x"),
      ("/x.sqlite3", "/", "x"), ("a/.sqlite3", "a/.sqlite3", "data"),
      ("notes.sqlite3/", "notes.sqlite3/", "data"),
    ])
  func databases(path: String, directory: String, filename: String) throws {
    let location = try #require(SQLiteLocation(path: path))
    #expect(location.directory == directory)
    #expect(location.filename == filename)
  }

  @Test(
    "A PostgreSQL place keeps what libpq takes, and is shown without user and password",
    arguments: [
      ("postgresql://h/db", "postgresql://h/db", "stockroom", "postgresql://h/db?namespace=stockroom"),
      (
        "postgres://u:p@h1:1,h2/db?sslmode=require&namespace=a%20b&password=p",
        "postgresql://u:p@h1:1,h2/db?sslmode=require&password=p", "a b",
        "postgresql://h1:1,h2/db?namespace=a b"
      ),
      (
        "postgresql://u:p?w:x@h/db?namespace=n", "postgresql://u:p?w:x@h/db", "n",
        "postgresql://h/db?namespace=n"
      ),
      (
        "postgresql:///db?host=/tmp", "postgresql:///db?host=/tmp", "stockroom",
        "postgresql:///db?namespace=stockroom"
      ),
    ])
  func postgreSQL(text: String, connection: String, namespace: String, shown: String) throws {
    guard case .postgreSQL(let url) = try Place(text) else {
      Issue.record("\(try Place(text))")
      return
    }
    #expect(url.connection == connection)
    #expect(url.namespace == namespace)
    #expect(url.description == shown)
  }

  @Test(
    "A connection to PostgreSQL is repeated without its passwords, in both forms that libpq takes",
    arguments: [
      ("postgresql://u:secret@h/d?password=secret&a=b", "postgresql://u:***@h/d?password=***&a=b"),
      (
        "--postgresql=postgres://u:a:secret?@h?sslpassword=secret&pass%77ord=secret",
        "--postgresql=postgresql://u:***@h?sslpassword=***&pass%77ord=***"
      ),
      ("postgresql://u:a@secret@h/d", "postgresql:***"), ("postgresql://u@h/d", "postgresql://u@h/d"),
      ("host=h password=secret user=u", "host=h password=*** user=u"),
      (#"password = 'a \' secret' host=h"#, "password = *** host=h"),
      (#"password=a\ secret host=h"#, "password=*** host=h"), ("password\n=\n'a secret", "password\n=\n***"),
      ("sqlite:password", "sqlite:password"),
    ])
  func passwords(argument: String, shown: String) { #expect(argument.hidingPasswords == shown) }

  @Test(
    "A message shows the URLs among the arguments as places, once, and without their passwords",
    arguments: [
      // A URL without a namespace is a prefix of the text of its place.
      ("postgresql://h/db?namespace=stockroom: away", "postgresql://h/db?namespace=stockroom: away"),
      ("'postgresql://h/db'", "'postgresql://h/db?namespace=stockroom'"),
      ("'postgresql://u:secret@h/db'", "'postgresql://h/db?namespace=stockroom'"),
      ("password=secret: away", "password=*** away"), ("sqlite:notes", "sqlite:notes"),
    ])
  func messages(message: String, shown: String) {
    let arguments = ["count", "postgresql://h/db", "postgresql://u:secret@h/db", "password=secret:"]
    #expect(message.withoutPasswords(of: arguments) == shown)
  }

  @Test(
    "Wrong places say what is wrong, and never show a password",
    arguments: [
      ("", "The place is empty."), ("notes", "names no engine"),
      ("./sqlite:x", "names no engine"),
      ("mysql://u:secret@h/x", "There is no engine for places that begin with mysql:."),
      ("memory:", "The contents of memory: are lost when the command ends."),
      ("sqlite:", "sqlite: needs a path"),
      ("lmdb://host/x", "names a host"), ("files:///%", "is not a valid URL"),
      ("files:///%00", "is not a valid URL"),
      ("postgresql:u:secret@h", "begins with postgresql://"),
      ("postgresql://u:pa/secret@h/x", "write @ as %40"), ("postgresql://u:p@secret@h/x", "write @ as %40"),
      ("postgresql://u:secret?3/x@h/x", "? as %3F"),
      ("host=h user=u password=secret", "A PostgreSQL place is a URL"),
      ("host=h password = secret:1", "A PostgreSQL place is a URL"),
      ("postgresql://u:secret@h/x?namespace=", "is given once"),
      ("postgresql://u:secret@h/x?namespace=a&namespace=b", "is given once"),
    ])
  func wrong(text: String, message: String) async throws {
    let output = try await CommandLineTool.run("count", text)
    #expect(output.status == 64)
    #expect(output.errorLines.count == 1)
    #expect(output.standardError.contains(message))
    #expect(!output.standardError.contains("secret"))
  }

  @Test("A bare path says which places are there")
  func suggestion() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("lmdb", in: directory)
      try await place.run("put", "--create", "key", "--value", "1")
      let output = try await CommandLineTool.run("count", place.directory.path)
      #expect(output.status == 64)
      #expect(output.standardError.contains("Places: lmdb:\(place.directory.path)"))
      let other = try await CommandLineTool.run("count", "sqlite:\(place.directory.path)")
      #expect(other.status == 1)
      #expect(
        other.standardError.hasSuffix(
          "There is no SQLite database at \(place.directory.path), but there is an LMDB database: "
            + "lmdb:\(place.directory.path).\n"))
    }
  }
}
