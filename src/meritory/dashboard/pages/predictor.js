// The model that has to earn its say: two faces, before it is heard and after.

import { h, fill, heading, card, stat, stats, badge, button, empty, link } from "../lib/dom.js";
import { ago, clip, ms, number, percent, plural, score, signed, words } from "../lib/format.js";
import { lines, outcome, outcomeOf, sparkline, splitGauge, winLoss } from "../lib/charts.js";
import { attempt, confirm, toast } from "../lib/dialog.js";
import { table } from "../lib/table.js";

export const title = "Predictor";

const SHOWN = 120;

export async function render(root, params, context) {
  const { api, live, signal, navigate } = context;
  const draw = async () => {
    const [status, comparisons, training, drift, latency] = await Promise.all([
      api.get("/api/predictor/status", {}, signal),
      api.get("/api/predictor/comparisons", { limit: SHOWN }, signal),
      api.get("/api/predictor/training", { limit: 100 }, signal),
      api.get("/api/predictor/drift", {}, signal),
      api.get("/api/analytics/latency", {}, signal),
    ]);
    if (signal.aborted) return;
    const speed = latency.results.find((one) => one.id === "predictor_score");
    const facts = {
      status,
      comparisons: comparisons.results,
      runs: training.results,
      drift,
      speed,
      signal,
      navigate,
    };
    fill(
      root,
      heading("Predictor", badge(words(status.phase), tone(status)), controls(status, draw, api)),
      problems(status),
      status.is_cold ? coldStart(facts) : active(facts),
    );
    root.dataset.mode = status.is_cold ? "cold" : "active";
  };
  await draw();
  live.on(["predictor", "session"], draw, signal);
}

function tone(status) {
  return { active: "good", disabled: "bad" }[status.phase] ?? "accent";
}

function problems(status) {
  return status.warnings.length
    ? h(
        "ul",
        { class: "problem" },
        status.warnings.map((text) => h("li", {}, text)),
      )
    : null;
}

function controls(status, draw, api) {
  const act = (path, text, body) => () =>
    attempt(async () => {
      await api.post(path, body);
      toast(text);
      draw();
    });
  const back = async () => {
    if (
      await confirm(
        "Go back to the model before?",
        `Version ${status.previous_version} will serve instead of ${status.model_version}.`,
        "Roll back",
      )
    ) {
      await act("/api/predictor/rollback", "The model before serves again.")();
    }
  };
  const off = async () => {
    const text = "The rule of thumb ranks alone until you enable it again. What it learned is kept.";
    if (await confirm("Disable the predictor?", text, "Disable")) {
      await act("/api/predictor/disable", "The rule of thumb ranks alone.")();
    }
  };
  const isOff = status.phase === "disabled";
  return [
    button("Train now", act("/api/predictor/train", "A training is queued."), {
      class: "quiet",
      disabled: isOff,
    }),
    button("Roll back", back, { class: "quiet", disabled: status.previous_version === null }),
    button(
      isOff ? "Enable" : "Disable",
      isOff ? act("/api/predictor/enable", "It may be heard again.") : off,
      { class: "quiet" },
    ),
    h("a", { class: "button quiet", href: "#/predictor/calibration" }, "Check the judge"),
  ];
}

// -- before it is heard ------------------------------------------------------------------------

function coldStart({ status, comparisons, runs, drift, speed, signal, navigate }) {
  const done = Math.min(status.training_sessions, status.min_training_sessions);
  const waiting = Object.entries(status.waiting_for).map(
    ([name, count]) => `${plural(count, words(name).replace(/s$/, ""))} to go`,
  );
  return [
    h(
      "div",
      { class: "columns" },
      card(
        "On its way",
        h(
          "label",
          {},
          `${number(done)} of ${number(status.min_training_sessions)} judged sessions`,
          h("progress", { value: done, max: status.min_training_sessions }),
        ),
        h(
          "p",
          {},
          "The rule of thumb ranks alone. The predictor ranks every session too, unseen, and is compared with it.",
        ),
        waiting.length
          ? h(
              "ul",
              {},
              waiting.map((text) => h("li", {}, text)),
            )
          : h("p", {}, "What is missing is proof: that it does better by more than luck."),
        splitGauge(status.alpha),
      ),
      statusCard(status, speed),
      evidence(status),
    ),
    card(
      "Comparisons so far",
      comparisons.length
        ? winLoss(comparisons, (one) => navigate(`/sessions/${encodeURIComponent(one.id)}`))
        : empty("None yet: they begin with the first judged session."),
    ),
    card("Recent sessions", recent(comparisons.slice(0, 10))),
    curve(runs, drift, signal),
  ];
}

// -- after --------------------------------------------------------------------------------------

function active({ status, comparisons, runs, drift, speed, signal, navigate }) {
  return [
    h(
      "div",
      { class: "columns" },
      card(
        "Who decides the ranking",
        splitGauge(status.alpha),
        h(
          "p",
          {},
          `Earned: ${percent(1 - status.earned_alpha)}. It wins ${percent(status.success_rate)} of the sessions lately.`,
        ),
      ),
      statusCard(status, speed),
      evidence(status),
    ),
    card(
      "Wins and losses",
      winLoss(comparisons, (one) => navigate(`/sessions/${encodeURIComponent(one.id)}`)),
      h(
        "p",
        { class: "row" },
        ["win", "loss", "tie", "excluded"].map((kind) => outcome(kind)),
        h("span", { class: "note" }, "the line is the success rate"),
      ),
    ),
    curve(runs, drift, signal),
    h("div", { class: "columns" }, projects(status), judgeDrift(drift, status)),
    surfaces(status),
    card("Recent sessions", recent(comparisons.slice(0, 10))),
  ];
}

function statusCard(status, speed) {
  return card(
    "Status",
    stats(
      stat("success rate", percent(status.success_rate)),
      stat("alpha", status.alpha.toFixed(2), "weight of the baseline"),
      stat(
        "history counts",
        percent(Math.max(status.history.recency, status.history.usefulness)),
        status.history.labels_valid ? "in the baseline" : "labels are not proved yet",
      ),
      stat("model", `v${status.model_version}`, status.model_scorer),
      stat("training pairs", number(status.training_sessions), "sessions"),
      stat("last trained", ago(status.last_trained_at), `loss ${score(status.last_train_loss)}`),
      stat("parameters", number(status.parameter_count)),
      stat("drift resets", number(status.drift_resets)),
      stat("judge drift", signed(status.scorer_drift_signal, 2)),
      stat("scoring p50", ms(status.latency.p50_ms)),
      stat("scoring p95", ms(status.latency.p95_ms), `limit ${ms(status.latency.timeout_ms)}`),
    ),
    h(
      "div",
      {},
      h("small", { class: "block" }, "latest scorings"),
      sparkline(
        speed?.recent_ms ?? [status.latency.p50_ms, status.latency.avg_ms, status.latency.last_ms],
        "how long scoring took lately",
        status.latency.timeout_ms,
      ),
    ),
  );
}

function evidence(status) {
  return card(
    "The evidence for each weight",
    table(
      [
        { title: "Alpha", numeric: true, cell: (one) => one.alpha.toFixed(2) },
        { title: "Sessions", numeric: true, cell: (one) => number(one.session_count) },
        { title: "NDCG gained", numeric: true, cell: (one) => signed(one.ndcg_margin) },
        { title: "Errors from 0", numeric: true, cell: (one) => one.ndcg_errors.toFixed(1) },
        { title: "Trust", numeric: true, cell: (one) => one.trust.toFixed(2) },
      ],
      status.weighings,
      { caption: "Evidence", none: "None yet." },
    ),
  );
}

function recent(list) {
  return table(
    [
      {
        title: "Session",
        wide: true,
        cell: (one) => link(`#/sessions/${encodeURIComponent(one.id)}`, clip(one.id, 60)),
      },
      { title: "Outcome", cell: (one) => outcome(outcomeOf(one)) },
      { title: "Predictor", numeric: true, cell: (one) => score(one.predictor_ndcg) },
      { title: "Baseline", numeric: true, cell: (one) => score(one.baseline_ndcg) },
      { title: "Margin", numeric: true, cell: (one) => signed(one.margin) },
      { title: "When", cell: (one) => ago(one.at) },
    ],
    list,
    { caption: "Recent sessions", none: "No session was judged yet." },
  );
}

function curve(runs, drift, signal) {
  const list = [...runs].reverse();
  const known = list.filter((one) => one.loss !== null);
  const marks = known
    .filter((one) => one.is_accepted)
    .map((one) => ({ at: new Date(one.at) / 1000, label: `v${one.model_version}` }));
  const drifts = drift.resets.map((one) => ({ at: new Date(one.at) / 1000, label: "drift" }));
  return card(
    "Training",
    known.length
      ? lines(
          "Loss and canary NDCG of each training",
          known.map((one) => new Date(one.at) / 1000),
          [
            { label: "loss", values: known.map((one) => one.loss) },
            { label: "canary NDCG@10", values: known.map((one) => one.canary_ndcg), second: true },
          ],
          { signal, marks: [...marks, ...drifts] },
        )
      : empty("No training yet."),
    runs.length ? trainings(runs) : null,
  );
}

function trainings(runs) {
  return h(
    "details",
    {},
    h("summary", {}, plural(runs.length, "training")),
    table(
      [
        { title: "When", cell: (one) => ago(one.at) },
        {
          title: "Model",
          cell: (one) => [
            one.is_accepted ? badge(`v${one.model_version}`, "good") : badge("refused", "warn"),
            ` ${one.scorer}`,
          ],
        },
        { title: "Why", cell: (one) => words(one.reason) },
        { title: "Sessions", numeric: true, cell: (one) => number(one.sample_count) },
        { title: "Loss", numeric: true, cell: (one) => score(one.loss) },
        { title: "Canary", numeric: true, cell: (one) => score(one.canary_ndcg) },
        { title: "Change", numeric: true, cell: (one) => signed(one.canary_ndcg_delta) },
        { title: "Variance", numeric: true, cell: (one) => score(one.canary_score_variance) },
        { title: "Churn", numeric: true, cell: (one) => percent(one.canary_topk_churn) },
        { title: "Resets", numeric: true, cell: (one) => number(one.drift_resets) },
        { title: "Failures", numeric: true, cell: (one) => number(one.train_validation_failures) },
        { title: "Took", numeric: true, cell: (one) => ms(one.duration_ms) },
        {
          title: "Gates",
          wide: true,
          cell: (one) =>
            one.error ??
            one.gates
              .filter((gate) => gate.passed === false || gate.is_passed === false)
              .map((gate) => gate.name)
              .join(", "),
        },
      ],
      runs,
      { caption: "Trainings" },
    ),
  );
}

function projects(status) {
  return card(
    "By project",
    table(
      [
        { title: "Project", cell: (one) => one.project ?? "none" },
        { title: "Sessions", numeric: true, cell: (one) => number(one.session_count) },
        { title: "Success", numeric: true, cell: (one) => percent(one.success_rate) },
      ],
      status.project_success_rates,
      { caption: "Success by project", none: "Too few sessions." },
    ),
  );
}

function surfaces(status) {
  return card(
    "Searches and later prompts",
    table(
      [
        { title: "Surface", cell: (one) => one.surface },
        { title: "Phase", cell: (one) => one.phase },
        { title: "Influence", numeric: true, cell: (one) => percent(1 - one.alpha) },
        { title: "Searches", numeric: true, cell: (one) => number(one.searches) },
        { title: "Success", numeric: true, cell: (one) => percent(one.success_rate) },
        { title: "Model", numeric: true, cell: (one) => `v${one.model_version}` },
      ],
      status.surfaces,
      { caption: "Each has a model and a record of its own", none: "None yet." },
    ),
  );
}

function judgeDrift(drift, status) {
  return card(
    "Does anything drift?",
    h(
      "p",
      {},
      drift.is_drifting
        ? "The success rate is low for long: influence is about to be taken away."
        : "The predictor holds its level.",
      ` ${plural(drift.drift_resets, "reset")} so far.`,
    ),
    table(
      [
        { title: "Until", cell: (one) => ago(one.until) },
        { title: "Sessions", numeric: true, cell: (one) => number(one.sessions) },
        { title: "New less old", numeric: true, cell: (one) => signed(one.signal, 2) },
      ],
      drift.results.slice(0, 8),
      { caption: "Drift of the judge", none: "Too few labels to see whether the judge prefers what is new." },
    ),
  );
}
