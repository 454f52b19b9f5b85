import { h, fill, heading, card, badge, button, freshId, link } from "../lib/dom.js";
import { ago, clip, number, score, signed } from "../lib/format.js";
import { outcome } from "../lib/charts.js";
import { table } from "../lib/table.js";

export const title = "Sessions";

const PAGE = 50;
const LIMIT = 1000;
const OUTCOMES = ["win", "loss", "tie", "excluded"];

export async function render(root, params, { api, live, signal, announce }) {
  let kind = params.query.get("outcome");
  let project = params.query.get("project");
  let count = PAGE;
  const list = h("div", {});
  const draw = async () => {
    const sessions = await api.get("/api/sessions", { limit: count, outcome: kind, project }, signal);
    if (signal.aborted) return;
    const rows = sessions.results;
    fill(
      list,
      card(
        "Latest first",
        table(COLUMNS, rows, { caption: "Sessions", rowKey: (one) => one.id, none: "No session yet." }),
        sessions.before && count < LIMIT
          ? button(
              "Show more",
              () => {
                count += PAGE;
                draw();
              },
              { class: "quiet" },
            )
          : null,
      ),
    );
    announce(`${rows.length} sessions`);
  };
  const { project: projects } = await api.get("/api/memories/facets", {}, signal);
  fill(
    root,
    heading(
      "Sessions",
      choice("Project", Object.keys(projects).filter(Boolean).sort(), project, (value) => {
        project = value;
        draw();
      }),
      choice("Outcome", OUTCOMES, kind, (value) => {
        kind = value;
        draw();
      }),
    ),
    list,
  );
  await draw();
  live.on(["session", "predictor"], draw, signal);
}

function choice(label, names, chosen, pick) {
  const id = freshId("choice");
  const select = h(
    "select",
    { id, onchange: () => pick(select.value || null) },
    h("option", { value: "" }, "all"),
    names.map((one) => h("option", { value: one, selected: one === chosen }, clip(one, 40))),
  );
  return h("div", { class: "row" }, h("label", { for: id }, label), select);
}

const COLUMNS = [
  {
    title: "Session",
    wide: true,
    cell: (one) => [
      link(`#/sessions/${encodeURIComponent(one.id)}`, clip(one.context || one.id, 120)),
      h(
        "div",
        { class: "row" },
        one.project ? badge(one.project) : null,
        one.harness ? badge(one.harness) : null,
      ),
    ],
  },
  {
    title: "Outcome",
    cell: (one) => (one.outcome ? outcome(one.outcome) : badge(one.state)),
  },
  {
    title: "Margin",
    numeric: true,
    cell: (one) => signed(one.margin),
    sort: (one) => one.margin,
  },
  { title: "Score", numeric: true, cell: (one) => score(one.score?.score), sort: (one) => one.score?.score },
  { title: "Shown", numeric: true, cell: (one) => number(one.shown), sort: (one) => one.shown },
  {
    title: "Used",
    numeric: true,
    cell: (one) => number(one.score?.memories_used),
    sort: (one) => one.score?.memories_used,
  },
  { title: "Alpha", numeric: true, cell: (one) => one.alpha.toFixed(2), sort: (one) => one.alpha },
  { title: "Began", cell: (one) => ago(one.started_at), sort: (one) => one.started_at },
];
