// A list of any length, of which only those notes are in the document that can be seen.

const rowHeight = 56;
const margin = 6;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function button(label, symbol, action, className) {
  const made = element("button", { type: "button", class: className, tabindex: "-1", "data-action": action }, symbol);
  made.ariaLabel = label;
  return made;
}

export const parseTags = text => text.split(",").map(tag => tag.trim()).filter(Boolean);

export class ListView {
  #box; #list; #actions;
  #notes = [];
  #rows = new Map();
  #activeID = null;
  #editingID = null;
  #added = new Set();

  /** actions: { change(note, change), remove(note), refresh() } */
  constructor(box, actions) {
    this.#box = box;
    this.#list = box.querySelector("ul");
    this.#actions = actions;
    box.addEventListener("scroll", () => this.#draw(), { passive: true });
    new ResizeObserver(() => this.#draw()).observe(box);
    this.#list.addEventListener("click", event => this.#clicked(event));
    this.#list.addEventListener("dblclick", event => {
      const id = event.target.closest("li")?.dataset.id;
      if (id && !event.target.closest("button, form")) this.#edit(id);
    });
    this.#list.addEventListener("keydown", event => this.#pressed(event));
    this.#list.addEventListener("focusin", event => {
      const id = event.target.closest("li")?.dataset.id;
      if (id) this.#activate(id);
    });
    this.#list.addEventListener("submit", event => { event.preventDefault(); this.#submit(event.target); });
  }

  show(notes, added = new Set()) {
    // A row in which somebody writes stays until that is saved or given up, whatever becomes of its note.
    const editing = this.#rows.get(this.#editingID)?.note;
    if (editing && !notes.some(note => note.id === editing.id)) {
      notes = notes.toSpliced(Math.min(notes.length, this.#indexOf(editing.id)), 0, editing);
    }
    const index = this.#indexOf(this.#activeID);
    this.#notes = notes;
    this.#added = added;
    // Where the active row is gone, the one in its place is.
    if (this.#indexOf(this.#activeID) < 0) {
      this.#activeID = notes[Math.max(0, Math.min(index, notes.length - 1))]?.id ?? null;
    }
    this.#draw();
  }

  focus(id = this.#activeID) {
    if (!id) return this.#box.focus();
    this.#activate(id);
    this.#reveal(id);
    this.#rows.get(id)?.focus();
  }

  #indexOf(id) { return this.#notes.findIndex(note => note.id === id); }

  #draw() {
    this.#list.style.height = `${this.#notes.length * rowHeight}px`;
    const first = Math.max(0, Math.floor(this.#box.scrollTop / rowHeight) - margin);
    const last = Math.min(
      this.#notes.length, Math.ceil((this.#box.scrollTop + this.#box.clientHeight) / rowHeight) + margin);
    const wanted = new Map();
    for (let index = first; index < last; index += 1) wanted.set(this.#notes[index].id, index);
    // Who writes in a row keeps it, and the active one is where Tab leads.
    for (const id of [this.#activeID, this.#editingID]) {
      const index = id && !wanted.has(id) ? this.#indexOf(id) : -1;
      if (index >= 0) wanted.set(id, index);
    }
    let lostFocus = false;
    for (const [id, row] of this.#rows) {
      if (wanted.has(id)) continue;
      lostFocus ||= row.contains(document.activeElement);
      row.remove();
      this.#rows.delete(id);
      if (id === this.#editingID) this.#editingID = null;
    }
    for (const [id, index] of wanted) this.#drawRow(this.#notes[index], index);
    // In the order in which they are read aloud.
    let before = null;
    for (const id of [...wanted.keys()].sort((a, b) => wanted.get(a) - wanted.get(b))) {
      const row = this.#rows.get(id);
      const next = before ? before.nextSibling : this.#list.firstChild;
      if (next !== row) this.#list.insertBefore(row, next);
      before = row;
    }
    if (lostFocus) this.focus();
  }

  #drawRow(note, index) {
    let row = this.#rows.get(note.id);
    if (!row) {
      row = element("li", { "data-id": note.id },
        button("", "", "done", "mark"),
        element("div", { class: "body" }, element("div", { class: "text" }), element("div", { class: "tags" })),
        button("", "", "favourite", "star"), button("Edit", "✎", "edit", "edit"), button("Delete", "✕", "remove", "remove"));
      this.#rows.set(note.id, row);
      if (this.#added.has(note.id)) row.classList.add("new");
    }
    row.style.transform = `translateY(${index * rowHeight}px)`;
    row.tabIndex = note.id === this.#activeID ? 0 : -1;
    row.ariaSetSize = this.#notes.length;
    row.ariaPosInSet = index + 1;
    if (row.note === note) return;
    row.note = note;
    row.classList.toggle("done", note.done);
    row.ariaLabel = [note.text, note.done && "done", note.favourite && "favourite", note.tags.length && `tags: ${note.tags.join(", ")}`]
      .filter(Boolean).join(", ");
    if (note.id === this.#editingID) return;
    row.querySelector(".text").textContent = note.text;
    row.querySelector(".tags").textContent = note.tags.map(tag => `#${tag}`).join("  ");
    const [mark, star] = [row.querySelector(".mark"), row.querySelector(".star")];
    mark.textContent = note.done ? "☑" : "☐";
    mark.ariaLabel = "Done";
    mark.ariaPressed = note.done;
    star.textContent = note.favourite ? "★" : "☆";
    star.ariaLabel = "Favourite";
    star.ariaPressed = note.favourite;
  }

  #activate(id) {
    if (id === this.#activeID) return;
    const old = this.#rows.get(this.#activeID);
    if (old) old.tabIndex = -1;
    this.#activeID = id;
    const row = this.#rows.get(id);
    if (row) row.tabIndex = 0;
  }

  #reveal(id) {
    const top = this.#indexOf(id) * rowHeight;
    if (top < this.#box.scrollTop) this.#box.scrollTop = top;
    const bottom = top + rowHeight - this.#box.clientHeight;
    if (bottom > this.#box.scrollTop) this.#box.scrollTop = bottom;
    this.#draw();
  }

  #perform(action, note) {
    if (action === "done") this.#actions.change(note, { done: !note.done });
    if (action === "favourite") this.#actions.change(note, { favourite: !note.favourite });
    if (action === "remove") this.#actions.remove(note);
    if (action === "edit") this.#edit(note.id);
  }

  #clicked(event) {
    const action = event.target.closest("button")?.dataset.action;
    const note = event.target.closest("li")?.note;
    if (action === "cancel") this.#endEditing(note.id);
    else if (action && note) this.#perform(action, note);
  }

  #pressed(event) {
    const row = event.target.closest("li");
    if (!row) return;
    if (event.target.closest("form")) {
      if (event.key === "Escape") { event.preventDefault(); this.#endEditing(row.dataset.id); }
      event.stopPropagation();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.#indexOf(row.dataset.id);
    const page = Math.max(1, Math.floor(this.#box.clientHeight / rowHeight) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const isButton = event.target.closest("button");
    const actions = isButton ? {} : { Enter: "edit", F2: "edit", " ": "done", f: "favourite", Delete: "remove" };
    if (event.key in moves) {
      const next = Math.min(this.#notes.length - 1, Math.max(0, index + moves[event.key]));
      this.focus(this.#notes[next].id);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      // The buttons of the row.
      const stops = [row, ...row.querySelectorAll("button")].filter(stop => stop.checkVisibility());
      const at = stops.indexOf(document.activeElement) + (event.key === "ArrowRight" ? 1 : -1);
      stops[Math.min(stops.length - 1, Math.max(0, at))].focus();
    } else if (actions[event.key]) {
      if (event.key === "Delete") {
        const neighbor = this.#notes[index + 1] ?? this.#notes[index - 1];
        if (neighbor) this.focus(neighbor.id); else this.#box.focus();
      }
      this.#perform(actions[event.key], row.note);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #edit(id) {
    if (this.#editingID) this.#endEditing(this.#editingID, false);
    const row = this.#rows.get(id);
    if (!row) return;
    this.#editingID = id;
    const text = element("input", { name: "text", maxlength: "10000", required: "", "aria-label": "Text" });
    const tags = element("input", { name: "tags", class: "tags-input", "aria-label": "Tags" });
    text.value = text.defaultValue = row.note.text;
    tags.value = tags.defaultValue = row.note.tags.join(", ");
    const form = element("form", {}, text, tags, element("button", { type: "submit" }, "Save"),
      element("button", { type: "button", "data-action": "cancel" }, "Cancel"));
    row.replaceChildren(form);
    text.focus();
    text.select();
  }

  async #submit(form) {
    const { note } = form.closest("li");
    const { text, tags } = form.elements;
    // Only what was changed here: others may have changed the rest meanwhile.
    const change = {};
    if (text.value !== text.defaultValue) change.text = text.value;
    if (tags.value !== tags.defaultValue) change.tags = parseTags(tags.value);
    const save = form.querySelector("button");
    if (save.disabled) return;
    save.disabled = true;
    const isSaved = !Object.keys(change).length || await this.#actions.change(note, change);
    save.disabled = false;
    if (isSaved) this.#endEditing(note.id, form.contains(document.activeElement));
  }

  #endEditing(id, returnsFocus = true) {
    if (this.#editingID !== id) return;
    this.#editingID = null;
    const row = this.#rows.get(id);
    if (!row) return;
    row.remove();
    this.#rows.delete(id);
    this.#actions.refresh();
    this.#draw();
    if (returnsFocus) this.focus(this.#indexOf(id) >= 0 ? id : this.#activeID);
  }
}
