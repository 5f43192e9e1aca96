// One connection for the streams of all panels: browsers make no more than six to one server.

const panels = ["notes", "favourites", "counter"];
/** The server says something every five seconds. */
const timeout = 12_000;

export class Connection {
  #source = null;
  #lastEventID = "";
  #snapshot = [];
  #delay = 250;
  #retry; #watch;
  #onMessage; #onState;

  /** onMessage(panel, value); onState("connecting" | "live" | "offline") */
  constructor(onMessage, onState) {
    this.#onMessage = onMessage;
    this.#onState = onState;
    addEventListener("online", () => this.open());
    addEventListener("offline", () => this.#lost());
    // A page that the browser keeps for going back has no connection.
    addEventListener("pageshow", event => { if (event.persisted) this.open(); });
    addEventListener("pagehide", () => this.#close());
  }

  open() {
    this.#close();
    this.#snapshot = [];
    this.#onState("connecting");
    this.#heard();
    const query = new URLSearchParams(panels.map(panel => ["panel", panel]));
    if (this.#lastEventID) query.set("after", this.#lastEventID);
    const source = this.#source = new EventSource(`/events?${query}`);
    source.onopen = () => {
      this.#delay = 250;
      this.#onState("live");
      this.#heard();
    };
    source.onerror = () => this.#lost();
    let latestID = "";
    for (const panel of [...panels, "beat"]) {
      source.addEventListener(panel, event => {
        this.#heard();
        if (panel !== "beat") this.#snapshot.push([panel, JSON.parse(event.data)]);
        // An event without an identifier, which has that of the event before it, is a part of a snapshot or of a large change. It is
        // shown when that is complete.
        if (event.lastEventId === latestID) return;
        this.#lastEventID = latestID = event.lastEventId;
        for (const [panel, value] of this.#snapshot.splice(0)) this.#onMessage(panel, value);
      });
    }
  }

  #heard() {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => this.#lost(), timeout);
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#watch);
    clearTimeout(this.#retry);
  }

  #lost() {
    this.#close();
    this.#onState("offline");
    // Not all at once, when a server comes back that many have lost.
    this.#retry = setTimeout(() => this.open(), this.#delay * (0.5 + Math.random()));
    this.#delay = Math.min(this.#delay * 2, 4_000);
  }
}
