// What changes while one looks: the daemon tells, pages listen, nobody polls when it works.

const TOPICS = ["memory", "session", "predictor", "feedback", "rules", "job", "error", "log"];

class Live extends EventTarget {
  constructor() {
    super();
    this.source = null;
    this.isUp = false;
  }

  start() {
    // A browser opens six connections to one host at most: pages nobody looks at give theirs back.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.open()));
    addEventListener("pagehide", () => this.stop());
    this.open();
  }

  open() {
    if (this.source) return;
    this.source = new EventSource("/api/live");
    this.source.addEventListener("open", () => this.say("up", true));
    this.source.addEventListener("error", () => this.say("up", false));
    this.source.addEventListener("change", (event) => {
      const { topic, ...details } = JSON.parse(event.data);
      if (TOPICS.includes(topic)) this.dispatchEvent(new CustomEvent(topic, { detail: details }));
    });
  }

  stop() {
    this.source?.close();
    this.source = null;
  }

  say(name, isUp) {
    this.isUp = isUp;
    this.dispatchEvent(new CustomEvent(name, { detail: { isUp } }));
  }

  /** Calls back on these topics until the signal, bundled: a burst is one call. */
  on(topics, call, signal) {
    let waiting = null;
    const soon = (event) => {
      if (waiting) return;
      waiting = setTimeout(() => {
        waiting = null;
        if (!signal.aborted) call(event.detail);
      }, 250);
    };
    for (const topic of topics) this.addEventListener(topic, soon, { signal });
    signal.addEventListener("abort", () => clearTimeout(waiting));
  }
}

export const live = new Live();
