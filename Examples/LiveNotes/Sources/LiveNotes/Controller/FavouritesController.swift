import Observation
import Stockroom

/// The favourite notes. It shares the store with ``NotesController``, on which it does not depend.
@MainActor @Observable
final class FavouritesController {
  @ObservationIgnored @Stored private var notes: [Note]

  init(store: Store<Note>) { _notes = Stored(in: store) }

  var favourites: [Note] { notes.filter(\.isFavourite) }

  /// The changes of all notes.
  var events: AsyncStream<StoreEvent<Note>> { $notes.events }
}
