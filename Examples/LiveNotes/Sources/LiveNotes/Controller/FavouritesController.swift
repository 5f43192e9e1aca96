import Observation
import Stockroom

/// The favourite notes. Shares the store with ``NotesController``, but does not depend on it.
@MainActor @Observable
final class FavouritesController {
  @ObservationIgnored @Stored private var notes: [Note]

  init(store: Store<Note>) { _notes = Stored(in: store) }

  var favourites: [Note] { notes.filter(\.isFavourite) }

  /// The changes of all notes, not only of favourites.
  var events: AsyncStream<StoreEvent<Note>> { $notes.events }
}
