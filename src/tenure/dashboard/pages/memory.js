import { h, fill, heading, card, stat, stats, badge, button, empty, link } from "../lib/dom.js";
import { ago, moment, score, short, words } from "../lib/format.js";
import { attempt } from "../lib/dialog.js";
import { actions, marks, memoryLink, path } from "../lib/memories.js";

export const title = "Memory";

export async function render(root, { id }, { api, live, signal }) {
  const draw = async () => {
    const [memory, history, sessions, reports] = await Promise.all([
      api.get(path(id), {}, signal),
      api.get(`${path(id)}/history`, {}, signal),
      api.get(`${path(id)}/sessions`, { limit: 20 }, signal),
      api.get("/api/feedback", { memory_id: id, limit: 20 }, signal),
    ]);
    if (signal.aborted) return;
    fill(
      root,
      heading("Memory", actions(memory, draw)),
      h(
        "section",
        { class: "card", "aria-label": "Text" },
        h("p", { class: "memory-text" }, memory.content),
        h(
          "div",
          { class: "row" },
          marks(memory),
          memory.tags.map((tag) => badge(`#${tag}`)),
        ),
      ),
      h("div", { class: "columns" }, numbers(memory), origin(memory), shown(memory, sessions.results, api)),
      h("div", { class: "columns" }, changes(memory, history.results, draw, api), said(reports.results)),
    );
  };
  await draw();
  live.on(["memory", "session"], draw, signal);
}

function numbers(memory) {
  return card(
    "Numbers",
    stats(
      stat("times shown", memory.access_count),
      stat("usefulness", memory.usefulness.toFixed(2)),
      stat("confidence", memory.confidence.toFixed(2)),
      stat("importance", memory.importance.toFixed(2)),
      stat("last shown", ago(memory.last_accessed)),
      stat("learned", ago(memory.created_at)),
    ),
  );
}

function origin(memory) {
  const rows = [
    ["id", memory.id],
    ["source", words(memory.provenance)],
    ["origin", memory.origin],
    ["trust", memory.trust],
    ["project", memory.project],
    ["agent", memory.agent],
    ["valid from", memory.valid_from],
    ["valid until", memory.valid_until],
    ["vector", memory.embedder],
    ["superseded by", memory.superseded_by && memoryLink(memory.superseded_by)],
    ...memory.sources.flatMap((one) => [
      [
        "session",
        one.session_key && link(`#/sessions/${encodeURIComponent(one.session_key)}`, short(one.session_key)),
      ],
      ["harness", one.harness],
      ["extractor", one.extractor],
    ]),
  ].filter(([, value]) => value);
  return card(
    "Where it comes from",
    h(
      "dl",
      { class: "stats" },
      rows.map(([name, value]) =>
        h("div", { class: "stat" }, h("dt", {}, name), h("dd", {}, h("small", { class: "mono" }, value))),
      ),
    ),
  );
}

function shown(memory, sessions, api) {
  const answer = h("div", {});
  const why = (one) =>
    attempt(async () => {
      const told = await api.get(
        `/api/sessions/${api.part(one.session_key)}/memories/${api.part(memory.id)}/why`,
      );
      fill(answer, h("h3", {}, `Why in ${short(one.session_key)}`), reasons(told));
    });
  return card(
    "Why was this injected?",
    sessions.length
      ? h(
          "ul",
          { class: "timeline" },
          sessions.map((one) =>
            h(
              "li",
              {},
              link(`#/sessions/${encodeURIComponent(one.session_key)}`, short(one.session_key)),
              ` ${ago(one.at)}, rank ${one.rank}, label ${score(one.label)} `,
              button("Why?", () => why(one), {
                class: "link",
                "aria-label": `Why in session ${short(one.session_key)}`,
              }),
            ),
          ),
        )
      : empty("It was in no session yet."),
    answer,
  );
}

/** Whatever numbers there are, as they come. */
export function reasons(told) {
  return h(
    "dl",
    { class: "stats" },
    Object.entries(told)
      .filter(([, value]) => value !== null && typeof value !== "object")
      .map(([name, value]) =>
        h(
          "div",
          { class: "stat" },
          h("dt", {}, words(name)),
          h(
            "dd",
            {},
            h(
              "small",
              { class: "mono" },
              typeof value === "number" ? Number(value.toFixed(4)) : String(value),
            ),
          ),
        ),
      ),
  );
}

function changes(memory, entries, draw, api) {
  const undo = () =>
    attempt(async () => {
      await api.post(`${path(memory.id)}/restore`);
      draw();
    });
  return card(
    "History",
    h(
      "ul",
      { class: "timeline" },
      [...entries]
        .reverse()
        .map((one, place) =>
          h(
            "li",
            {},
            h("strong", {}, one.action),
            one.undone ? badge("taken back") : null,
            ` by ${one.actor}, `,
            h("small", {}, moment(one.at)),
            one.why ? h("div", {}, h("small", {}, one.why)) : null,
            one.before && one.before.content !== one.after?.content
              ? h("div", { class: "memory-text" }, h("small", {}, `before: ${one.before.content}`))
              : null,
            place === 0 && one.before && !one.undone ? button("Undo", undo, { class: "quiet" }) : null,
          ),
        ),
    ),
  );
}

function said(events) {
  return card(
    "What was said about it",
    events.length
      ? h(
          "ul",
          { class: "timeline" },
          events.map((one) =>
            h(
              "li",
              {},
              badge(one.signal, one.polarity > 0 ? "good" : "bad"),
              " ",
              one.what_went_wrong || one.what_worked || one.context,
              " ",
              h("small", {}, ago(one.at)),
            ),
          ),
        )
      : empty("No reports."),
  );
}
