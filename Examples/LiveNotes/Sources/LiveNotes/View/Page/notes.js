// The notes of one panel, in their order, as the server says.

const isBefore = (a, b) => a.created !== b.created ? a.created < b.created : a.id < b.id;

export class NoteList {
  #byID = new Map();
  #sorted = [];

  get all() { return this.#sorted; }
  get(id) { return this.#byID.get(id); }

  /** Takes in a message of the server. Returns the identifiers of notes that were not here before. */
  apply({ all, notes = [], removed = [] }) {
    const added = new Set();
    if (all) {
      this.#byID = new Map(notes.map(note => [note.id, note]));
      this.#sorted = [...this.#byID.values()].sort((a, b) => isBefore(a, b) ? -1 : 1);
      return added;
    }
    if (removed.length) {
      const gone = new Set(removed);
      for (const id of gone) this.#byID.delete(id);
      this.#sorted = this.#sorted.filter(note => !gone.has(note.id));
    }
    for (const note of notes) {
      const old = this.#byID.get(note.id);
      const isInPlace = old?.created === note.created;
      // One that was removed and made again comes to another place.
      if (old && !isInPlace) this.#sorted.splice(this.#index(old), 1);
      this.#byID.set(note.id, note);
      const index = this.#index(note);
      if (isInPlace) this.#sorted[index] = note;
      else { this.#sorted.splice(index, 0, note); added.add(note.id); }
    }
    return added;
  }

  /** Where the note is, or would be. */
  #index(note) {
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(this.#sorted[middle], note)) low = middle + 1; else high = middle;
    }
    return low;
  }
}
