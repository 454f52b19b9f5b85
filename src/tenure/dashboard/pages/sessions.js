import { h, fill, heading, card, badge, button, freshId, link } from "../lib/dom.js";
import { ago, clip, number, score, signed } from "../lib/format.js";
import { outcome } from "../lib/charts.js";
import { table } from "../lib/table.js";

export const title = "Sessions";

const PAGE = 50;
const OUTCOMES = ["win", "loss", "tie", "excluded"];

export async function render(root, params, { api, live, signal, announce }) {
  let kind = params.query.get("outcome");
  let count = PAGE;
  const list = h("div", {});
  const draw = async () => {
    const sessions = await api.get("/api/sessions", { limit: count, outcome: kind }, signal);
    if (signal.aborted) return;
    const rows = sessions.results;
    fill(
      list,
      card(
        "Latest first",
        table(COLUMNS, rows, { caption: "Sessions", rowKey: (one) => one.id, none: "No session yet." }),
        sessions.before
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
  const id = freshId("outcome");
  const select = h(
    "select",
    {
      id,
      onchange: () => {
        kind = select.value || null;
        draw();
      },
    },
    h("option", { value: "" }, "all"),
    OUTCOMES.map((one) => h("option", { value: one, selected: one === kind }, one)),
  );
  fill(
    root,
    heading("Sessions", h("div", { class: "row" }, h("label", { for: id }, "Outcome"), select)),
    list,
  );
  await draw();
  live.on(["session", "predictor"], draw, signal);
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
