// Whether what is written is worth keeping: the gate, merges, refusals, the janitor, probes.

import { h, fill, heading, card, stat, stats, badge, button, empty, link } from "../lib/dom.js";
import { ago, clip, ms, number, percent, plural, score, words } from "../lib/format.js";
import { attempt, confirm, toast } from "../lib/dialog.js";
import { memoryLink } from "../lib/memories.js";
import { table } from "../lib/table.js";

export const title = "Quality";

export async function render(root, params, { api, live, signal }) {
  const answer = h("div", { "aria-live": "polite" });
  const draw = async () => {
    const [quality, proposals, merges, refusals, probes] = await Promise.all([
      api.get("/api/quality", {}, signal),
      api.get("/api/proposals", { limit: 30, everywhere: true }, signal),
      api.get("/api/quality/merges", { limit: 30 }, signal),
      api.get("/api/extraction/refusals", { limit: 30 }, signal),
      api.get("/api/quality/probes", {}, signal),
    ]);
    if (signal.aborted) return;
    fill(
      root,
      heading("Quality"),
      h("div", { class: "columns" }, gate(quality.figures), shown(quality.figures), sources(quality.figures)),
      proposalList(proposals.results, api, draw),
      mergeList(merges.results, api, draw),
      refusalList(refusals.results, api, draw),
      h("div", { class: "columns" }, janitor(quality, api, draw, answer), probeRuns(probes.results)),
    );
  };
  await draw();
  live.on(["memory", "session"], draw, signal);
}

/** A share with how sure it is. */
function share(label, one, note) {
  if (!one || !one.total) return stat(label, "–", "nothing to count yet");
  const rate = one.rate ?? (one.wrong ?? one.count) / one.total;
  return stat(
    label,
    percent(rate, 1),
    note ?? `${percent(one.low, 1)} to ${percent(one.high, 1)} of ${number(one.total)}`,
  );
}

function gate(figures) {
  return card(
    "Gate",
    stats(
      Object.entries(figures.outcomes ?? {}).map(([name, count]) => stat(words(name), number(count))),
      share("had a near neighbour", figures.gate_trigger),
      share("wrong merges, audited", figures.false_merges),
      stat("split again", number(figures.split)),
      stat("redundant in a week", number(figures.redundant?.additions), "memories the gate would merge now"),
    ),
  );
}

function shown(figures) {
  const below = figures.below_floor ?? {};
  return card(
    "What was shown",
    stats(
      stat(
        "below the floor per turn",
        number(below.per_turn, 2),
        `${number(below.memories)} of ${number(below.shown)} shown`,
      ),
      stat("found by asking", number(figures.retrievals)),
      stat("refused and kept aside", number(figures.refusals)),
    ),
    h(
      "p",
      { class: "note" },
      "The floor is the relevance below which a memory is not about the context at all.",
    ),
  );
}

function sources(figures) {
  const rows = [...(figures.by_provenance ?? []), ...(figures.by_extractor ?? [])];
  return card(
    "Did it help, by source",
    h("p", { class: "note" }, "With all weights at 1: weighting must not hide a bad source."),
    table(
      [
        { title: "Source", cell: (one) => words(one.name) },
        {
          title: "Helped",
          numeric: true,
          cell: (one) => percent(one.helped.rate),
          sort: (one) => one.helped.rate,
        },
        { title: "Of", numeric: true, cell: (one) => number(one.helped.total) },
        {
          title: "Mean label",
          numeric: true,
          cell: (one) => score(one.mean_label),
          sort: (one) => one.mean_label,
        },
      ],
      rows,
      { caption: "Sources", none: "Nothing was judged yet." },
    ),
  );
}

function mergeList(merges, api, draw) {
  const audit = (one, verdict) =>
    attempt(async () => {
      await api.post(`/api/quality/merges/${one.entry}/audit`, { verdict });
      toast(`Noted: ${verdict}.`);
      draw();
    });
  const split = (one) =>
    attempt(async () => {
      await api.post(`/api/quality/merges/${one.entry}/split`);
      toast("The merge is split again.");
      draw();
    });
  const acts = (one) =>
    one.is_split
      ? badge("split")
      : h(
          "div",
          { class: "row" },
          button("Right", () => audit(one, "right"), {
            class: "quiet",
            "aria-pressed": String(one.verdict === "right"),
          }),
          button("Split", () => split(one), {
            class: "quiet",
            "aria-label": `Split ${clip(one.after ?? "", 60)}`,
          }),
        );
  return card(
    "Merges",
    table(
      [
        { title: "Became", wide: true, cell: (one) => memoryLink(one.memory_id, one.after, 160) },
        {
          title: "Of these two",
          wide: true,
          cell: (one) => [
            h("div", {}, clip(one.before ?? "", 160)),
            h("div", {}, clip(one.other ?? "", 160)),
          ],
        },
        { title: "Why", cell: (one) => h("small", {}, one.why) },
        { title: "When", cell: (one) => ago(one.at) },
        { title: "", cell: acts },
      ],
      merges,
      { caption: "Merges", none: "Nothing was merged yet.", rowKey: (one) => one.entry },
    ),
  );
}

/** Pins and constraints that an agent or a transcript proposed; a person decides. */
function proposalList(proposals, api, draw) {
  const decide = (one, verb, done) =>
    attempt(async () => {
      await api.post(`/api/memories/${api.part(one.id)}/${verb}`);
      toast(done);
      draw();
    });
  const act = (one, text, verb, done) =>
    button(text, () => decide(one, verb, done), {
      class: "quiet",
      "aria-label": `${text} ${clip(one.content, 60)}`,
    });
  return card(
    "Proposals",
    table(
      [
        { title: "Text", wide: true, cell: (one) => memoryLink(one.id, one.content, 160) },
        { title: "Proposed as", cell: (one) => one.tags.filter((tag) => tag.startsWith("proposed:")).join(", ") },
        { title: "Project", cell: (one) => one.project ?? "–" },
        {
          title: "",
          cell: (one) =>
            h(
              "div",
              { class: "row" },
              act(one, "Confirm", "confirm", "It holds now."),
              act(one, "Reject", "reject", "It stays an ordinary memory."),
            ),
        },
      ],
      proposals,
      { caption: "Proposals", none: "No pin or constraint is proposed." },
    ),
  );
}

function refusalList(refusals, api, draw) {
  const restore = (one) =>
    attempt(async () => {
      await api.post(`/api/extraction/refusals/${api.part(one.id)}/restore`);
      toast("It is a memory now.");
      draw();
    });
  return card(
    "Refused by extraction",
    table(
      [
        { title: "Text", wide: true, cell: (one) => clip(one.content, 200) },
        { title: "Why", cell: (one) => words(one.reason) },
        { title: "By", cell: (one) => one.extractor },
        {
          title: "Session",
          cell: (one) =>
            one.session_key
              ? link(`#/sessions/${encodeURIComponent(one.session_key)}`, clip(one.session_key, 24))
              : "–",
        },
        {
          title: "",
          cell: (one) =>
            button("Keep it", () => restore(one), {
              class: "quiet",
              "aria-label": `Keep ${clip(one.content, 60)}`,
            }),
        },
      ],
      refusals,
      { caption: "Refusals", none: "Nothing was refused." },
    ),
  );
}

function janitor({ upkeep }, api, draw, answer) {
  const look = () =>
    attempt(async () => {
      const found = await api.post("/api/quality/janitor", { dry_run: true });
      fill(
        answer,
        h(
          "p",
          {},
          found.due
            ? `${plural(found.due, "memory", "memories")} would be demoted or forgotten.`
            : "Nothing is due.",
        ),
        found.results.length
          ? h(
              "ul",
              { class: "timeline" },
              found.results
                .slice(0, 20)
                .map((one) =>
                  h(
                    "li",
                    {},
                    memoryLink(one.memory_id, one.content),
                    " ",
                    badge(one.fate),
                    h("div", {}, h("small", {}, one.reason)),
                  ),
                ),
            )
          : null,
        h(
          "p",
          { class: "note" },
          `Old records: ${
            Object.entries(found.erase)
              .map(([name, count]) => `${name} ${number(count)}`)
              .join(", ") || "none"
          }`,
        ),
      );
    });
  const run = async () => {
    if (
      !(await confirm(
        "Sweep now?",
        "What was never of use although its project was active is demoted. It can be taken back.",
        "Sweep",
      ))
    )
      return;
    await attempt(async () => {
      const done = await api.post("/api/quality/janitor", { dry_run: false });
      const undo = async () => {
        await api.post("/api/quality/janitor", { dry_run: false, undo: true });
        draw();
      };
      toast(
        `${number(done.demoted)} demoted, ${number(done.forgotten)} forgotten.`,
        done.demoted + done.forgotten ? { undo } : {},
      );
      draw();
    });
  };
  const rows = Object.entries(upkeep ?? {}).filter(
    ([, value]) => value !== null && typeof value !== "object",
  );
  return card(
    "Janitor",
    rows.length ? stats(rows.map(([name, value]) => stat(words(name), String(value)))) : null,
    h(
      "div",
      { class: "row" },
      button("What would it do?", look, { class: "quiet" }),
      button("Sweep now", run, { class: "quiet" }),
    ),
    answer,
  );
}

function probeRuns(runs) {
  return card(
    "Probes",
    table(
      [
        { title: "Run", cell: (one) => one.name },
        { title: "p@1", numeric: true, cell: (one) => score(one.figures["p@1"]?.mean) },
        { title: "p@3", numeric: true, cell: (one) => score(one.figures["p@3"]?.mean) },
        { title: "MRR", numeric: true, cell: (one) => score(one.figures.mrr?.mean) },
        { title: "p95", numeric: true, cell: (one) => ms(one.latency_ms.p95) },
        { title: "When", cell: (one) => ago(one.at) },
      ],
      runs,
      { caption: "Probe runs", none: "None saved yet." },
    ),
    runs.length
      ? null
      : empty(
          "Try ",
          h("code", {}, "meritory eval generate probes.jsonl"),
          " and ",
          h("code", {}, "meritory eval run probes.jsonl --save NAME"),
          ".",
        ),
  );
}
