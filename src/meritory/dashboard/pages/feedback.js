import { h, fill, heading, card, stat, stats, badge, button, empty, freshId, link } from "../lib/dom.js";
import { ago, clip, number, percent, words } from "../lib/format.js";
import { form, toast } from "../lib/dialog.js";
import { marks, memoryLink } from "../lib/memories.js";
import { table } from "../lib/table.js";

export const title = "Feedback";

const TONES = { promoted: "good", clarification_required: "warn", rejected: "bad" };

export async function render(root, params, { api, live, signal }) {
  let status = params.query.get("status");
  const draw = async () => {
    const [summary, events, risks, contested, lessons] = await Promise.all([
      api.get("/api/feedback/summary", {}, signal),
      api.get("/api/feedback", { limit: 50, status }, signal),
      api.get("/api/feedback/risk", {}, signal),
      api.get("/api/feedback/contested", {}, signal),
      api.get("/api/memories", { kind: "lesson", limit: 20, everywhere: true }, signal),
    ]);
    if (signal.aborted) return;
    const id = freshId("status");
    const select = h(
      "select",
      {
        id,
        onchange: () => {
          status = select.value || null;
          draw();
        },
      },
      h("option", { value: "" }, "all"),
      Object.keys(TONES).map((one) => h("option", { value: one, selected: one === status }, words(one))),
    );
    fill(
      root,
      heading(
        "Feedback",
        button("Report something", () => report(api, draw)),
      ),
      h("div", { class: "columns" }, approval(summary), domains(summary), risk(risks.results)),
      card(
        "Reports",
        h(
          "div",
          { class: "filters" },
          h("div", { class: "field" }, h("label", { for: id }, "Status"), select),
        ),
        reports(events.results),
      ),
      h("div", { class: "columns" }, lessonsCard(lessons.results), contestedCard(contested.results)),
    );
  };
  await draw();
  live.on(["feedback", "memory"], draw, signal);
}

function report(api, draw) {
  form(
    "What was good or bad?",
    [
      {
        name: "signal",
        label: "Verdict",
        kind: "select",
        options: ["thumbs_down", "thumbs_up"],
        value: "thumbs_down",
      },
      { name: "context", label: "What was going on", kind: "area", required: true },
      { name: "what_went_wrong", label: "What went wrong", kind: "area" },
      { name: "what_to_change", label: "What to do instead", kind: "area" },
      { name: "what_worked", label: "What worked", kind: "area" },
    ],
    async (values) => {
      const told = Object.fromEntries(Object.entries(values).filter(([, value]) => value));
      const answer = await api.post("/api/feedback", told);
      toast(answer.message);
      draw();
    },
    "Send",
  );
}

function approval(summary) {
  const shown = (name, one) =>
    stat(
      name,
      percent(one.rate),
      `${number(one.positive)} of ${number(one.positive + one.negative)}, ${percent(one.low)} to ${percent(one.high)}`,
    );
  const { overall, latest, week, month, trend } = summary.approval;
  return card(
    "Approval",
    stats(
      shown("overall", overall),
      shown("last 20", latest),
      shown("7 days", week),
      shown("30 days", month),
    ),
    h(
      "p",
      {},
      "Trend: ",
      badge(trend, { rising: "good", improving: "good", falling: "bad", declining: "bad" }[trend]),
    ),
  );
}

function domains(summary) {
  return card(
    "By domain",
    table(
      [
        { title: "Domain", cell: ([name]) => name },
        { title: "Good", numeric: true, cell: ([, one]) => number(one.positive) },
        { title: "Bad", numeric: true, cell: ([, one]) => number(one.negative) },
      ],
      Object.entries(summary.domains),
      { caption: "Reports by domain", none: "No reports yet." },
    ),
  );
}

function risk(list) {
  return card(
    "What fails more often than the rest",
    table(
      [
        { title: "What", cell: (one) => `${one.facet}: ${one.name}` },
        { title: "Failed", numeric: true, cell: (one) => `${one.negative} of ${one.total}` },
        { title: "Rate", numeric: true, cell: (one) => percent(one.rate), sort: (one) => one.rate },
        { title: "Between", cell: (one) => `${percent(one.low)} and ${percent(one.high)}` },
        { title: "Risk", cell: (one) => badge(one.level, one.level === "high" ? "bad" : "plain") },
      ],
      list.slice(0, 10),
      { caption: "Risks", none: "Nothing stands out." },
    ),
  );
}

function reports(list) {
  return table(
    [
      {
        title: "Report",
        wide: true,
        cell: (one) => [
          badge(words(one.signal), one.polarity > 0 ? "good" : "bad"),
          " ",
          link(
            `#/feedback/${encodeURIComponent(one.id)}`,
            clip(one.what_went_wrong || one.what_worked || one.context || "(no words)", 160),
          ),
        ],
      },
      { title: "Status", cell: (one) => badge(words(one.status), TONES[one.status]) },
      { title: "Times", numeric: true, cell: (one) => one.occurrence || "", sort: (one) => one.occurrence },
      { title: "Domain", cell: (one) => one.domain },
      { title: "When", cell: (one) => ago(one.at), sort: (one) => one.at },
    ],
    list,
    { caption: "Reports", none: "No reports yet.", rowKey: (one) => one.id },
  );
}

function lessonsCard(list) {
  return card(
    "Lessons",
    list.length
      ? h(
          "ul",
          { class: "timeline" },
          list.map((one) =>
            h("li", {}, memoryLink(one.id, one.content, 200), h("div", { class: "row" }, marks(one))),
          ),
        )
      : empty("A report that says what to do differently becomes a lesson."),
  );
}

function contestedCard(list) {
  return card(
    "Contested",
    list.length
      ? h(
          "ul",
          { class: "timeline" },
          list.map((one) =>
            h(
              "li",
              {},
              memoryLink(one.id, one.memory.content, 200),
              h("div", {}, h("small", {}, `for ${one.support.toFixed(1)}, against ${one.doubt.toFixed(1)}`)),
            ),
          ),
        )
      : empty("Nobody says the opposite of what is stored."),
  );
}
