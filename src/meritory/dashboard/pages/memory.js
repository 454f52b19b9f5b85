import { h, fill, heading, card, stat, stats, badge, button, empty, link } from "../lib/dom.js";
import { ago, clip, moment, plural, score, words } from "../lib/format.js";
import { outcome } from "../lib/charts.js";
import { attempt } from "../lib/dialog.js";
import { whyView } from "../lib/why.js";
import { actions, marks, memoryLink, path } from "../lib/memories.js";

export const title = "Memory";

const LATEST = 4;

export async function render(root, { id }, { api, live, signal }) {
  const answer = h("div", { "aria-live": "polite" });
  const why = async (key) => {
    const told = await api.get(`/api/sessions/${api.part(key)}/memories/${api.part(id)}/why`, {}, signal);
    fill(answer, h("h3", {}, "In ", sessionLink(key)), whyView(told));
  };
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
      shown(sessions.results, why, answer),
      h("div", { class: "columns" }, numbers(memory), origin(memory), said(reports.results)),
      changes(memory, history.results, draw, api),
    );
    return sessions.results;
  };
  const [latest] = (await draw()) ?? [];
  if (latest) await why(latest.session_key);
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
      ["session", one.session_key && sessionLink(one.session_key)],
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

function sessionLink(key) {
  return link(`#/sessions/${encodeURIComponent(key)}`, clip(key, 24));
}

function shown(sessions, why, answer) {
  const list = (some) =>
    h(
      "ul",
      { class: "timeline" },
      some.map((one) =>
        h(
          "li",
          {},
          sessionLink(one.session_key),
          ` ${ago(one.at)}, rank ${one.rank || "–"}, label ${score(one.label)} `,
          one.outcome ? outcome(one.outcome) : null,
          " ",
          button("Why?", () => attempt(() => why(one.session_key)), {
            class: "link",
            "aria-label": `Why in session ${clip(one.session_key, 24)}`,
          }),
        ),
      ),
    );
  const rest = sessions.slice(LATEST);
  return card(
    "Why was this injected?",
    sessions.length ? list(sessions.slice(0, LATEST)) : empty("It was shown in no session yet."),
    rest.length
      ? h("details", {}, h("summary", {}, plural(rest.length, "earlier session")), list(rest))
      : null,
    answer,
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
