// The inspector: what was ranked how, what was shown, and what really helped.

import { h, fill, heading, card, stat, stats, badge, button, empty } from "../lib/dom.js";
import { ago, moment, number, score, signed, words, clip } from "../lib/format.js";
import { outcome, outcomeOf } from "../lib/charts.js";
import { attempt } from "../lib/dialog.js";
import { memoryLink, texts } from "../lib/memories.js";
import { whyView } from "../lib/why.js";
import { table } from "../lib/table.js";

export const title = "Session";

const TOP = 10;
const SHOWN_FIRST = 30;
// A label this near to 0 means no effect.
const NO_EFFECT = 0.15;

export async function render(root, { id }, { api, live, signal }) {
  const answer = h("div", { "aria-live": "polite" });
  const draw = async () => {
    const audit = await api.get(`/api/predictor/audit/${api.part(id)}`, {}, signal);
    const known = await texts(
      audit.results.map((one) => one.id),
      signal,
    );
    if (signal.aborted) return;
    const { session, comparison } = audit;
    fill(
      root,
      heading(
        clip(session.context || "Session", 90),
        comparison || session.score ? outcome(outcomeOf(comparison)) : badge(session.state),
      ),
      h("div", { class: "columns" }, summary(audit), verdict(session.score, comparison)),
      card(
        "Both rankings",
        h(
          "p",
          { class: "note" },
          "Bold: shown to the agent. ✓ helped, ✗ did harm, · judged without effect, ⌕ found by words.",
        ),
        h(
          "div",
          { class: "side-by-side" },
          ranking("Rule of thumb", audit.results, "baseline_rank", known),
          ranking("Predictor", audit.results, "predictor_rank", known),
          ranking("As served", audit.results, "rank", known),
        ),
      ),
      missed(audit.results, known),
      candidates(audit, known, api, answer),
      events(audit.events),
    );
  };
  await draw();
  live.on(["session", "predictor"], draw, signal);
}

function summary({ session, comparison, events: list }) {
  const spread = list.find((one) => one.event === "predictor.diversity")?.details;
  return card(
    "Session",
    stats(
      stat("began", ago(session.started_at), moment(session.started_at)),
      stat("state", session.state),
      stat("prompts", session.prompts),
      stat("shown", session.shown),
      stat("weight of the baseline", session.alpha.toFixed(2)),
      stat("model", comparison?.model_version ?? "–", comparison?.scorer),
      stat("project", session.project ?? "–"),
      stat("agent's client", session.harness ?? "–"),
      stat("lowered by diversity", number(spread?.lowered), "they repeat a better one"),
    ),
    h("p", { class: "note" }, "Key ", h("code", {}, session.id)),
  );
}

function verdict(told, comparison) {
  if (!told) return card("What came of it", empty("Not judged yet."));
  return card(
    "What came of it",
    stats(
      stat("continuity", score(told.score)),
      stat("judge's confidence", told.confidence.toFixed(2), told.judge),
      stat("confidence gate", told.excluded ? "left out" : "passed", told.excluded && words(told.excluded)),
      stat("used of shown", `${number(told.memories_used)} of ${number(told.memories_recalled)}`),
      stat("explained again", told.novel_context_count),
      stat("predictor's NDCG@10", score(comparison?.predictor_ndcg)),
      stat("baseline's NDCG@10", score(comparison?.baseline_ndcg)),
      stat("margin", signed(comparison?.margin)),
      stat(
        "shown and found by words",
        comparison?.fts_overlap_score === null || comparison === null
          ? "–"
          : score(comparison.fts_overlap_score),
      ),
    ),
    h(
      "p",
      {},
      comparison?.ema_updated
        ? "Counted for the success rate."
        : `Left out: ${words(comparison?.reason ?? told.excluded ?? "nothing to compare")}.`,
    ),
    told.reasoning
      ? [h("h3", {}, "The judge's reasons"), h("p", { class: "memory-text" }, told.reasoning)]
      : null,
    told.missing_topics.length ? h("p", {}, `Missing: ${told.missing_topics.join(", ")}`) : null,
  );
}

function mark(one) {
  const word = one.fts_hit_count ? "⌕" : "";
  if (one.label === null) return word;
  return `${one.label > NO_EFFECT ? "✓" : one.label < -NO_EFFECT ? "✗" : "·"}${word}`;
}

function ranking(name, all, field, known) {
  const list = all
    .filter((one) => one[field])
    .sort((a, b) => a[field] - b[field])
    .slice(0, TOP);
  return h(
    "div",
    {},
    h("h3", {}, name),
    list.length
      ? h(
          "ol",
          { class: "ranking" },
          list.map((one) =>
            h(
              "li",
              { class: one.was_injected ? "injected" : null },
              memoryLink(one.id, known.get(one.id), 80),
              " ",
              h("span", { "aria-label": one.label === null ? null : `label ${score(one.label)}` }, mark(one)),
            ),
          ),
        )
      : empty("It did not rank this session."),
  );
}

function missed(all, known) {
  const list = all.filter((one) => !one.was_injected && one.label > NO_EFFECT);
  return card(
    "Missed: helped, or would have, and was not shown",
    list.length
      ? h(
          "ul",
          { class: "timeline" },
          list.map((one) =>
            h(
              "li",
              {},
              memoryLink(one.id, known.get(one.id)),
              ` label ${score(one.label)}, rank ${one.rank || "–"}`,
            ),
          ),
        )
      : empty("Nothing that is known of."),
  );
}

function candidates({ session, results: list }, known, api, answer) {
  const box = h("div", {});
  const show = (count) =>
    fill(
      box,
      candidateTable(list.slice(0, count), known, why),
      count < list.length
        ? button(`Show all ${list.length}`, () => show(list.length), { class: "quiet" })
        : null,
    );
  const why = (one) =>
    attempt(async () => {
      const told = await api.get(`/api/sessions/${api.part(session.id)}/memories/${api.part(one.id)}/why`);
      fill(answer, h("h3", {}, "Why"), h("p", { class: "memory-text" }, known.get(one.id)), whyView(told));
      answer.scrollIntoView({ block: "nearest" });
    });
  show(SHOWN_FIRST);
  return card("Candidates with every number", box, answer);
}

function candidateTable(list, known, why) {
  return table(
    [
      {
        title: "Memory",
        wide: true,
        cell: (one) => [
          memoryLink(one.id, known.get(one.id)),
          h(
            "div",
            { class: "row" },
            one.was_injected ? badge(`shown as ${one.handle ?? "–"}`, "good") : null,
            badge(words(one.source)),
            one.propensity < 1 ? badge(`on trial, ${score(one.propensity)}`, "warn") : null,
          ),
        ],
      },
      { title: "Rank", numeric: true, cell: (one) => one.rank || "–", sort: (one) => one.rank || Infinity },
      {
        title: "Baseline",
        numeric: true,
        cell: (one) => one.baseline_rank ?? "–",
        sort: (one) => one.baseline_rank,
      },
      {
        title: "Predictor",
        numeric: true,
        cell: (one) => one.predictor_rank ?? "–",
        sort: (one) => one.predictor_rank,
      },
      {
        title: "Final",
        numeric: true,
        cell: (one) => score(one.final_score),
        sort: (one) => one.final_score,
      },
      {
        title: "Hits",
        numeric: true,
        cell: (one) => one.fts_hit_count || "",
        sort: (one) => one.fts_hit_count,
      },
      {
        title: "Rated",
        numeric: true,
        cell: (one) => score(one.agent_relevance_score),
        sort: (one) => one.agent_relevance_score,
      },
      {
        title: "Judge",
        numeric: true,
        cell: (one) => score(one.relevance_score),
        sort: (one) => one.relevance_score,
      },
      { title: "Label", numeric: true, cell: (one) => score(one.label), sort: (one) => one.label },
      {
        title: "",
        cell: (one) =>
          button("Why?", () => why(one), {
            class: "link",
            "aria-label": `Why ${clip(known.get(one.id) ?? one.id, 60)}`,
          }),
      },
    ],
    list,
    { caption: "Candidates", rowKey: (one) => one.id },
  );
}

function events(list) {
  return card(
    "In order",
    list.length
      ? h(
          "ol",
          { class: "timeline" },
          list.map((one) =>
            h(
              "li",
              {},
              h("strong", {}, words(one.event)),
              " ",
              h("small", {}, moment(one.at)),
              h(
                "div",
                {},
                h(
                  "small",
                  { class: "mono" },
                  Object.entries(one.details)
                    .map(
                      ([name, value]) =>
                        `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`,
                    )
                    .join(" · "),
                ),
              ),
            ),
          ),
        )
      : empty("Nothing on record."),
  );
}
