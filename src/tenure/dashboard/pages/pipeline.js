import { h, fill, heading, card, stat, stats, badge, empty } from "../lib/dom.js";
import { ago, ms, number, words, clip } from "../lib/format.js";
import { table } from "../lib/table.js";

export const title = "Pipeline";

const TONES = { healthy: "good", degraded: "warn", unhealthy: "bad" };

export async function render(root, params, { api, live, signal }) {
  const draw = async () => {
    const [pipeline, report, latency, jobs] = await Promise.all([
      api.get("/api/pipeline/status", {}, signal),
      api.get("/api/diagnostics", {}, signal),
      api.get("/api/analytics/latency", {}, signal),
      api.get("/api/jobs", { limit: 30 }, signal),
    ]);
    if (signal.aborted) return;
    fill(
      root,
      heading("Pipeline", badge(report.status, TONES[report.status])),
      h("div", { class: "columns" }, workers(pipeline), queue(pipeline, jobs.results), health(report)),
      stages(pipeline.stages),
      latencies(latency.results),
    );
  };
  await draw();
  live.on(["job", "session", "predictor", "error"], draw, signal);
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value, Number.isInteger(value) ? 0 : 1);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function workers(pipeline) {
  return card(
    "Workers",
    h(
      "ul",
      { class: "timeline" },
      Object.entries(pipeline.workers).map(([name, one]) =>
        h(
          "li",
          {},
          h("strong", {}, name),
          " ",
          badge(one.running ? "running" : "idle", one.running ? "good" : "plain"),
          h(
            "div",
            {},
            h(
              "small",
              {},
              Object.entries(one.details)
                .filter(([, value]) => value !== null)
                .map(([key, value]) => `${words(key)} ${shown(value)}`)
                .join(" · "),
            ),
          ),
        ),
      ),
    ),
  );
}

function queue(pipeline, jobs) {
  return card(
    "Queue",
    stats(Object.entries(pipeline.queue).map(([name, count]) => stat(words(name), number(count)))),
    jobs.length
      ? table(
          [
            {
              title: "Job",
              wide: true,
              cell: (one) => [
                h("code", {}, clip(`${one.kind} ${one.key}`, 60)),
                one.error ? h("div", {}, h("small", {}, one.error)) : null,
              ],
            },
            {
              title: "State",
              cell: (one) =>
                badge(one.state, { parked: "bad", failed: "bad", queued: "accent", done: "good" }[one.state]),
            },
            { title: "Tries", numeric: true, cell: (one) => number(one.attempts ?? one.attempt_count) },
            { title: "Due", cell: (one) => ago(one.due_at) },
          ],
          jobs,
          { caption: "Jobs" },
        )
      : empty("No work waits."),
  );
}

function health(report) {
  return card(
    "Health",
    h(
      "ul",
      { class: "timeline" },
      report.domains.map((one) =>
        h(
          "li",
          {},
          h("strong", {}, one.domain),
          " ",
          badge(one.status, TONES[one.status] ?? "accent"),
          ` ${one.score.toFixed(2)}`,
          one.warnings.map((text) => h("div", { class: "note" }, text)),
          h(
            "details",
            {},
            h("summary", {}, "numbers"),
            h(
              "small",
              { class: "mono" },
              Object.entries(one.details)
                .map(([key, value]) => `${words(key)} ${shown(value)}`)
                .join(" · "),
            ),
          ),
        ),
      ),
    ),
  );
}

function stages(list) {
  return card(
    "Every stage of a session",
    table(
      [
        { title: "Flow", cell: (one) => one.flow },
        { title: "Stage", cell: (one) => h("strong", {}, one.stage) },
        { title: "What it does", wide: true, cell: (one) => one.about },
        { title: "Runs", numeric: true, cell: (one) => number(one.count), sort: (one) => one.count },
        { title: "p50", numeric: true, cell: (one) => ms(one.p50_ms), sort: (one) => one.p50_ms },
        {
          title: "p95",
          numeric: true,
          cell: (one) => (one.p95_ms > one.budget_ms ? badge(ms(one.p95_ms), "warn") : ms(one.p95_ms)),
          sort: (one) => one.p95_ms,
        },
        { title: "Budget", numeric: true, cell: (one) => ms(one.budget_ms) },
      ],
      list,
      { caption: "Stages" },
    ),
  );
}

function latencies(list) {
  return card(
    "How long things take",
    table(
      [
        { title: "What", cell: (one) => words(one.id) },
        { title: "Times", numeric: true, cell: (one) => number(one.count), sort: (one) => one.count },
        { title: "Last", numeric: true, cell: (one) => ms(one.last_ms) },
        { title: "p50", numeric: true, cell: (one) => ms(one.p50_ms), sort: (one) => one.p50_ms },
        { title: "p95", numeric: true, cell: (one) => ms(one.p95_ms), sort: (one) => one.p95_ms },
        { title: "p99", numeric: true, cell: (one) => ms(one.p99_ms), sort: (one) => one.p99_ms },
      ],
      list,
      { caption: "Latencies" },
    ),
  );
}
