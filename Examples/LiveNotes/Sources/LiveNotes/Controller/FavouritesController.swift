import Observation
import Stockroom

/// The notes that somebody likes. It shares the store with ``NotesController``, and needs to know nothing of that one.
@MainActor @Observable
final class FavouritesController {
  @ObservationIgnored @Stored private var notes: [Note]

  init(store: Store<Note>) { _notes = Stored(in: store) }

  var favourites: [Note] { notes.filter(\.isFavourite) }

  /// What changes among them.
  var events: AsyncStream<StoreEvent<Note>> { $notes.events }
}
