/// The full name of a type, for the place where values of the type belong.
func nameForPlaces(of type: Any.Type) -> String {
  // The full name of a private type has an address in it, which the next build changes.
  String(reflecting: type).replacing(#/\(unknown context at \$[0-9a-f]+\)\./#, with: "")
}
