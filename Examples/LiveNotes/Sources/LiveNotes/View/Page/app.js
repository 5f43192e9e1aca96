// The page: three panels that show what the server says, and ways to ask it for something else.

import { Connection } from "./connection.js";
import { ListView, parseTags } from "./list.js";
import { NoteList } from "./notes.js";

const find = id => document.getElementById(id);
const notes = new NoteList();
const favourites = new NoteList();

// MARK: Asking the server

async function ask(method, path, body) {
  const response = await fetch(path, {
    method, body: body && JSON.stringify(body), headers: body ? { "Content-Type": "application/json" } : {},
    signal: AbortSignal.timeout(15_000),
  }).catch(() => { throw new Error("The server cannot be reached. It may have been done or not."); });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error?.message ?? `The server said ${response.status}.`);
  return answer;
}

/** Does something, and says so if it cannot be done. Returns the answer, or nothing. */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    say(error.message, { isBad: true });
  }
}

let lastUndo = null;

function offerUndo(text, token) {
  lastUndo = token;
  say(text, { action: "Undo", perform: undo });
}

async function undo() {
  const token = lastUndo;
  if (!token || !await attempt(() => ask("POST", `/undo/${token}`))) return;
  if (lastUndo === token) lastUndo = null;
  say("Restored.");
}

function say(text, { isBad = false, action, perform } = {}) {
  const line = document.createElement("p");
  line.textContent = text;
  line.classList.toggle("bad", isBad);
  // Keyboard focus goes back to the notes.
  const leave = () => {
    if (line.contains(document.activeElement)) list.focus();
    line.remove();
  };
  if (action) {
    const button = document.createElement("button");
    button.textContent = action;
    button.addEventListener("click", () => { leave(); perform(); });
    line.append(button);
  }
  find("messages").replaceChildren(line);
  setTimeout(leave, action ? 15_000 : 5_000);
}

const actions = {
  refresh: () => draw(),
  change: (note, change) => attempt(() => ask("PATCH", `/notes/${note.id}`, change)),
  async remove(note) {
    const answer = await attempt(() => ask("DELETE", `/notes/${note.id}`));
    if (answer) offerUndo("Deleted.", answer.undo);
  },
};

// MARK: Panels

const list = new ListView(find("list"), actions);
const favouriteList = new ListView(find("favourite-list"), actions);
let drawing = 0;
let added = new Set();

function draw() {
  drawing = 0;
  const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const filter = document.querySelector("input[name=filter]:checked").value;
  const isShown = note => (filter === "all" || (filter === "done") === note.done) && words.every(word =>
    note.text.toLowerCase().includes(word) || note.tags.some(tag => `#${tag}`.toLowerCase().includes(word)));
  const shown = words.length || filter !== "all" ? notes.all.filter(isShown) : notes.all;
  find("matches").textContent = shown.length === notes.all.length ? "" : `${shown.length} of ${notes.all.length}`;
  list.show(shown, added);
  favouriteList.show(favourites.all, added);
  find("no-favourites").hidden = favourites.all.length > 0;
  added = new Set();
}

/** Once for all that comes before the next frame; at once where nobody sees the page. */
function drawSoon() {
  if (document.hidden) draw();
  else drawing ||= requestAnimationFrame(draw);
}

const panels = {
  notes(message) { for (const id of notes.apply(message)) added.add(id); drawSoon(); },
  favourites(message) { favourites.apply(message); drawSoon(); },
  counter({ all, done, favourite }) {
    find("counts").textContent = `${all} ${all === 1 ? "note" : "notes"}, ${done} done, ${favourite} ★`;
  },
};

const states = { connecting: "Connecting …", live: "Live", offline: "Offline, trying again …" };
const connection = new Connection((panel, value) => panels[panel](value), state => {
  const sign = find("connection");
  // Each try is not announced: it is the same news.
  if (state === "connecting" && sign.dataset.state === "offline") return;
  sign.dataset.state = state;
  sign.textContent = states[state];
});
connection.open();

// MARK: Forms and keys

/** What was sent last and may not have arrived; sent again, it makes no second note. */
let sent = null;

/** `crypto.randomUUID` is missing in pages that came by HTTP from another machine. */
function randomUUID() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = bytes[6] & 0x0f | 0x40;
  bytes[8] = bytes[8] & 0x3f | 0x80;
  const digits = Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

find("add").addEventListener("submit", async event => {
  event.preventDefault();
  const [text, tags] = [find("text"), find("tags")];
  const draft = { text: text.value, tags: parseTags(tags.value) };
  const words = JSON.stringify(draft);
  if (sent?.words !== words) sent = { words, id: randomUUID() };
  if (!await attempt(() => ask("POST", "/notes", { ...draft, id: sent.id }))) return;
  sent = null;
  if (text.value === draft.text) text.value = tags.value = "";
  text.focus();
});

find("search").addEventListener("input", drawSoon);
find("filter").addEventListener("change", drawSoon);

for (const which of ["done", "all"]) {
  find(`clear-${which}`).addEventListener("click", async () => {
    const answer = await attempt(() => ask("DELETE", `/notes?which=${which}`));
    if (!answer) return;
    const text = `${answer.removed} ${answer.removed === 1 ? "note" : "notes"} deleted.`;
    if (answer.undo) offerUndo(text, answer.undo); else say(text);
  });
}

addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input")) {
    if (event.key === "Escape") list.focus();
    return;
  }
  const keys = { n: () => find("text").focus(), "/": () => find("search").focus(), u: undo,
    ArrowDown: () => list.focus() };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
