import { h, fill, heading, card, stat, stats, badge, empty, link } from "../lib/dom.js";
import { ago, clip, number, percent, plural, words } from "../lib/format.js";
import { outcome, splitGauge } from "../lib/charts.js";
import { memoryLink } from "../lib/memories.js";

export const title = "Overview";

export async function render(root, params, { api, live, signal }) {
  const draw = async () => {
    const [figures, today, report, predictor, sessions, memories, feedback, rules] = await Promise.all([
      api.get("/api/stats", {}, signal),
      api.get("/api/analytics/activity", {}, signal),
      api.get("/api/diagnostics", {}, signal),
      api.get("/api/predictor/status", {}, signal),
      api.get("/api/sessions", { limit: 8 }, signal),
      api.get("/api/memories", { limit: 6, everywhere: true }, signal),
      api.get("/api/feedback/summary", {}, signal),
      api.get("/api/rules", {}, signal),
    ]);
    if (signal.aborted) return;
    fill(
      root,
      heading("Overview", badge(predictor.phase, predictor.phase === "active" ? "good" : "accent")),
      h(
        "div",
        { class: "columns" },
        counts(figures.figures, today),
        influence(predictor),
        attention(report, predictor, feedback, rules),
      ),
      h(
        "div",
        { class: "columns" },
        latestSessions(sessions.results),
        latestMemories(memories.results),
        domains(report),
      ),
    );
  };
  await draw();
  live.on(["memory", "session", "predictor", "feedback", "rules"], draw, signal);
}

function counts(figures, today) {
  return card(
    "What is there",
    stats(
      stat("memories", number(figures.live ?? 0), `${number(today.memories)} new today`),
      stat("sessions", number(figures["sessions.finished"] ?? 0), `${number(today.sessions)} today`),
      stat("shown today", number(today.injected), "memories"),
      stat(
        "wins today",
        number(today.win),
        `${plural(today.loss, "loss", "losses")}, ${plural(today.tie, "tie")}`,
      ),
      stat("merged", number(figures["write.merged"] ?? 0), "without loss"),
      stat("refused by the floor", number(figures["write.floored"] ?? 0)),
    ),
  );
}

function influence(status) {
  return card(
    "Who decides the ranking",
    splitGauge(status.alpha),
    h(
      "p",
      {},
      status.is_cold
        ? "The rule of thumb alone, until the predictor has proved that it does better. "
        : `The predictor has earned ${percent(1 - status.alpha)} of the say. `,
      link("#/predictor", "How it is doing"),
    ),
  );
}

function attention(report, predictor, feedback, rules) {
  const found = [
    ...report.domains.flatMap((one) => one.warnings.map((text) => [`${one.domain}: ${text}`, "#/pipeline"])),
    predictor.calibration.is_due && ["Some ratings of the judge wait for yours", "#/predictor/calibration"],
    feedback.clarification_required > 0 && [
      `${plural(feedback.clarification_required, "report")} cannot be acted on yet`,
      "#/feedback",
    ],
    feedback.contested > 0 && [`${plural(feedback.contested, "memory", "memories")} contested`, "#/feedback"],
    rules.results.some((one) => one.state === "proposed") && ["Rules are proposed", "#/rules"],
  ].filter(Boolean);
  return card(
    "Worth a look",
    found.length
      ? h(
          "ul",
          {},
          found.map(([text, href]) => h("li", {}, link(href, text))),
        )
      : empty("Nothing. All is in order."),
  );
}

function latestSessions(sessions) {
  return card(
    "Latest sessions",
    sessions.length
      ? h(
          "ul",
          { class: "timeline" },
          sessions.map((one) =>
            h(
              "li",
              {},
              link(`#/sessions/${encodeURIComponent(one.id)}`, clip(one.context || one.id, 80)),
              " ",
              one.outcome ? outcome(one.outcome) : badge(one.state),
              h("br", {}),
              h(
                "small",
                {},
                `${ago(one.started_at)}, ${plural(one.shown, "memory", "memories")} shown${one.project ? `, ${one.project}` : ""}`,
              ),
            ),
          ),
        )
      : empty("No session yet. ", h("code", {}, "meritory connect"), " puts Meritory into your agent."),
  );
}

function latestMemories(memories) {
  return card(
    "Latest memories",
    memories.length
      ? h(
          "ul",
          { class: "timeline" },
          memories.map((one) =>
            h(
              "li",
              {},
              memoryLink(one.id, one.content),
              h("br", {}),
              h("small", {}, `${words(one.kind)}, ${words(one.provenance)}, ${ago(one.created_at)}`),
            ),
          ),
        )
      : empty("Nothing is remembered yet."),
  );
}

function domains(report) {
  const tone = { healthy: "good", degraded: "warn", unhealthy: "bad" };
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
          badge(one.status, tone[one.status] ?? "accent"),
          one.warnings.length ? h("div", {}, h("small", {}, one.warnings.join("; "))) : null,
        ),
      ),
    ),
  );
}
