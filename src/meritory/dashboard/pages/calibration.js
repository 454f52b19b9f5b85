// A person rates what the judge rated, blind; how far they are apart is watched.

import { h, fill, heading, card, stat, stats, badge, button, empty, link } from "../lib/dom.js";
import { clip, number, score, signed } from "../lib/format.js";
import { lines } from "../lib/charts.js";
import { attempt } from "../lib/dialog.js";

export const title = "Check the judge";

const COUNT = 20;
const FLAG = 0.2;
// Keys 1 to 5.
const CHOICES = [
  [-1, "misled"],
  [0, "no effect"],
  [0.35, "a little"],
  [0.7, "helped"],
  [1, "decisive"],
];

export async function render(root, params, { api, signal, announce }) {
  let { calibration, results, days } = await api.get("/api/predictor/calibration", {}, signal);
  let waiting = results.filter((one) => one.human_label === null);
  let isBusy = false;
  const start = () =>
    attempt(async () => {
      ({ calibration, results } = await api.post("/api/predictor/calibration", { count: COUNT }));
      waiting = results.filter((one) => one.human_label === null);
      draw();
    });
  const rate = async (label) => {
    if (isBusy) return;
    isBusy = true;
    await attempt(() => send(label));
    isBusy = false;
  };
  const send = async (label) => {
    const [question] = waiting;
    ({ calibration } = await api.post("/api/predictor/calibration", {
      ratings: [{ session_key: question.session_key, memory_id: question.memory_id, label }],
    }));
    waiting = waiting.slice(1);
    if (!waiting.length) ({ days } = await api.get("/api/predictor/calibration", {}, signal));
    draw();
    announce(waiting.length ? `${waiting.length} to go` : "All are rated");
    root.querySelector(".choices button")?.focus();
  };
  addEventListener(
    "keydown",
    (event) => {
      const choice = CHOICES[Number(event.key) - 1];
      if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
      if (choice && waiting.length && !event.target.closest("input, textarea, select")) rate(choice[0]);
    },
    { signal },
  );
  const draw = () =>
    fill(
      root,
      heading("Check the judge", link("#/predictor", "Back to the predictor")),
      figures(calibration),
      waiting.length
        ? question(waiting[0], waiting.length, rate)
        : card(
            "Nothing to rate now",
            h(
              "p",
              {},
              "You rate how much single memories helped in recorded sessions, without seeing what the judge said. Your ratings are never trained on.",
            ),
            button(`Rate ${COUNT}`, start),
          ),
      overTime(days, signal),
    );
  draw();
}

function figures(calibration) {
  return card(
    "You and the judge",
    stats(
      stat("rated", `${number(calibration.rated)} of ${number(calibration.asked)}`),
      stat("mean distance", score(calibration.mean_absolute_error), `over ${FLAG} raises a flag`),
      stat("sessions since", number(calibration.sessions_since)),
    ),
    calibration.is_flagged ? badge("the judge is far from you", "bad") : null,
    calibration.is_due ? badge("due", "warn") : null,
  );
}

function overTime(days, signal) {
  const list = [...days].sort((a, b) => (a.id < b.id ? -1 : 1));
  return card(
    "Mean distance over time",
    list.length
      ? lines(
          "Mean distance between you and the judge by the day of asking",
          list.map((one) => new Date(one.id) / 1000),
          [
            { label: "mean distance", values: list.map((one) => one.mean_absolute_error) },
            { label: "flag", values: list.map(() => FLAG), second: true },
          ],
          { signal },
        )
      : empty("It begins with your first ratings."),
  );
}

function question(one, left, rate) {
  return card(
    `How much did this memory help? (${left} to go)`,
    h("h3", {}, "The session was about"),
    h("p", { class: "memory-text" }, clip(one.context || "(nothing was said)", 1200)),
    h("h3", {}, "The memory"),
    h("p", { class: "memory-text" }, one.content),
    h(
      "div",
      { class: "row choices", role: "group", "aria-label": "Your rating, keys 1 to 5" },
      CHOICES.map(([label, name], place) =>
        button(`${place + 1} ${name}`, () => rate(label), { class: "quiet", title: signed(label, 2) }),
      ),
    ),
    h("p", { class: "note" }, "Keys 1 to 5 do the same."),
  );
}
