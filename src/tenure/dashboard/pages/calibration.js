// A person rates what the judge rated, blind; how far they are apart is watched.

import { h, fill, heading, card, stat, stats, badge, button, empty, link } from "../lib/dom.js";
import { clip, number, score, signed } from "../lib/format.js";
import { attempt } from "../lib/dialog.js";

export const title = "Check the judge";

const COUNT = 20;
// Keys 1 to 5.
const CHOICES = [
  [-1, "misled"],
  [0, "no effect"],
  [0.35, "a little"],
  [0.7, "helped"],
  [1, "decisive"],
];

export async function render(root, params, { api, signal, announce }) {
  let { calibration, results } = await api.get("/api/predictor/calibration", {}, signal);
  let waiting = results.filter((one) => one.human_label === null);
  const start = () =>
    attempt(async () => {
      ({ calibration, results } = await api.post("/api/predictor/calibration", { count: COUNT }));
      waiting = results.filter((one) => one.human_label === null);
      draw();
    });
  const rate = (label) =>
    attempt(async () => {
      const [question] = waiting;
      ({ calibration } = await api.post("/api/predictor/calibration", {
        ratings: [{ session_key: question.session_key, memory_id: question.memory_id, label }],
      }));
      waiting = waiting.slice(1);
      draw();
      announce(waiting.length ? `${waiting.length} to go` : "All are rated");
      root.querySelector(".choices button")?.focus();
    });
  addEventListener(
    "keydown",
    (event) => {
      const choice = CHOICES[Number(event.key) - 1];
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
    );
  draw();
}

function figures(calibration) {
  return card(
    "You and the judge",
    stats(
      stat("rated", `${number(calibration.rated)} of ${number(calibration.asked)}`),
      stat("mean distance", score(calibration.mean_absolute_error), "over 0.2 raises a flag"),
      stat("sessions since", number(calibration.sessions_since)),
    ),
    calibration.is_flagged ? badge("the judge is far from you", "bad") : null,
    calibration.is_due ? badge("due", "warn") : null,
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
