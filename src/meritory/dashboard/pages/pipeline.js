import { h, fill, heading, card, stat, stats, badge, button, empty } from "../lib/dom.js";
import { attempt, toast } from "../lib/dialog.js";
import { ago, ms, number, words, clip } from "../lib/format.js";
import { table } from "../lib/table.js";

export const title = "Pipeline";

const TONES = { healthy: "good", degraded: "warn", unhealthy: "bad" };

export async function render(root, params, { api, live, signal }) {
  const draw = async () => {
    const [pipeline, report, latency, jobs, parked] = await Promise.all([
      api.get("/api/pipeline/status", {}, signal),
      api.get("/api/diagnostics", {}, signal),
      api.get("/api/analytics/latency", {}, signal),
      api.get("/api/jobs", { limit: 20 }, signal),
      api.get("/api/jobs", { limit: 100, state: "parked" }, signal),
    ]);
    if (signal.aborted) return;
    fill(
      root,
      heading("Pipeline", badge(report.status, TONES[report.status])),
      h("div", { class: "columns" }, workers(pipeline), queue(pipeline), health(report)),
      jobList(parked.results, jobs.results, api, draw),
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

function queue(pipeline) {
  return card(
    "Queue",
    stats(Object.entries(pipeline.queue).map(([name, count]) => stat(words(name), number(count)))),
  );
}

/** What gave up stands first: only that needs somebody. */
function jobList(parked, latest, api, draw) {
  const jobs = [...parked, ...latest.filter((one) => one.state !== "parked")];
  const retry = (one) =>
    attempt(async () => {
      await api.post(`/api/jobs/${api.part(one.kind)}/${api.part(one.key)}/retry`);
      toast("It is tried again.");
      draw();
    });
  return card(
    "Jobs",
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
                badge(
                  one.state,
                  { parked: "bad", queued: "accent", running: "accent", done: "good" }[one.state],
                ),
            },
            { title: "Tries", numeric: true, cell: (one) => number(one.attempt_count) },
            { title: "Due", cell: (one) => ago(one.due_at) },
            {
              title: "",
              cell: (one) =>
                one.state === "parked"
                  ? button("Retry", () => retry(one), {
                      class: "quiet",
                      "aria-label": `Retry ${clip(`${one.kind} ${one.key}`, 60)}`,
                    })
                  : null,
            },
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
