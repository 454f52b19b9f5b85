// Every number that put a memory into a session, or kept it out: what `meritory why` tells.

import { h, badge, stat, stats } from "./dom.js";
import { number, percent, plural, score, signed, words } from "./format.js";
import { table } from "./table.js";

const FEATURES = 8;

export function whyView(told) {
  return [
    h(
      "p",
      {},
      told.was_injected
        ? badge("shown", "good")
        : badge(told.was_candidate ? "not shown" : "not a candidate"),
      " ",
      told.reasons.join("; "),
    ),
    told.was_candidate
      ? [ranks(told), baselineParts(told.baseline), features(told.predictor), labels(told)]
      : null,
    told.searches.length ? searches(told.searches) : null,
  ];
}

function ranks({ rank, baseline_rank, predictor_rank, baseline, predictor, fusion, diversity, ...told }) {
  return stats(
    stat("rank", rank || "–", told.handle && `shown as ${told.handle}`),
    stat("rule of thumb", baseline_rank ?? "–", `composite ${score(baseline.composite)}`),
    stat("predictor", predictor_rank ?? "–", predictor.note ?? `score ${score(predictor.score)}`),
    fusion && stat("both joined", fusion.score.toFixed(5), `alpha ${fusion.alpha}, k ${fusion.k}`),
    diversity &&
      stat(
        "diversity",
        diversity.was_lowered ? `× ${diversity.factor.toFixed(2)}` : "unchanged",
        diversity.was_lowered ? "it repeats a better one" : null,
      ),
    stat("final", score(told.final_score)),
    told.propensity < 1 && stat("chance to be shown", percent(told.propensity)),
    stat("found by", h("small", {}, told.origins.map(words).join(", ") || words(told.source))),
  );
}

function searches(list) {
  return table(
    [
      { title: "Search", cell: (one) => `${one.surface} ${one.number}` },
      { title: "Formula", numeric: true, cell: (one) => one.formula_rank },
      { title: "Learned", numeric: true, cell: (one) => one.learned_rank },
      { title: "Of", numeric: true, cell: (one) => one.candidates },
      { title: "Alpha", numeric: true, cell: (one) => one.alpha },
      { title: "Returned", cell: (one) => (one.was_shown ? "yes" : "no") },
      { title: "Label", numeric: true, cell: (one) => score(one.label) },
    ],
    list,
    { caption: "Searches of this session that found it", none: "None." },
  );
}

const PART = [
  { title: "Part", cell: (one) => words(one.name) },
  { title: "Value", numeric: true, cell: (one) => score(one.value) },
  { title: "Weight", numeric: true, cell: (one) => score(one.weight) },
  { title: "Adds", numeric: true, cell: (one) => signed(one.adds) },
];

function baselineParts({ parts }) {
  return parts.length
    ? [h("h3", {}, "Rule of thumb"), table(PART, parts, { caption: "Parts of the rule of thumb" })]
    : null;
}

function features({ features: list, scorer, model_version: version }) {
  if (!list?.length) return null;
  const rest = list.slice(FEATURES);
  return [
    h("h3", {}, `Predictor (${scorer} v${version})`),
    table(PART, list.slice(0, FEATURES), { caption: "What told the predictor most" }),
    rest.length
      ? h(
          "details",
          {},
          h("summary", {}, plural(rest.length, "more feature")),
          table(PART, rest, { caption: "More features" }),
        )
      : null,
  ];
}

function labels(told) {
  const parts = Object.entries(told.label_parts ?? {}).filter(([, value]) => value !== null);
  return [
    h("h3", {}, "What came of it"),
    stats(
      stat("label", score(told.label)),
      stat("judge", score(told.relevance_score)),
      stat("agent", score(told.agent_relevance_score), plural(told.agent_feedback_count, "rating")),
      stat("found by words", number(told.fts_hit_count), "times"),
      parts.map(([name, value]) =>
        stat(
          `label: ${words(name)}`,
          h("small", {}, typeof value === "number" ? score(value) : shown(value)),
        ),
      ),
    ),
  ];
}

function shown(value) {
  return typeof value === "object" ? JSON.stringify(value) : words(value);
}
