import { h, fill, heading, card, badge, freshId } from "../lib/dom.js";
import { moment } from "../lib/format.js";
import { table } from "../lib/table.js";

export const title = "Logs";

const LEVELS = ["debug", "info", "warning", "error"];
const LIMIT = 200;

export async function render(root, params, { api, live, signal, announce }) {
  const chosen = { level: params.query.get("level") ?? "info", category: params.query.get("category") ?? "" };
  const list = h("div", {});
  const seen = new Set();
  const known = h("datalist", { id: freshId("categories") });
  let isPaused = false;
  const draw = async () => {
    const { results } = await api.get(
      "/api/logs",
      { limit: LIMIT, level: chosen.level, category: chosen.category },
      signal,
    );
    if (signal.aborted) return;
    for (const one of results) seen.add(one.category);
    fill(
      known,
      [...seen].sort().map((name) => h("option", { value: name })),
    );
    fill(
      list,
      card(
        "Latest first",
        table(
          [
            { title: "When", cell: (one) => moment(one.at) },
            { title: "Level", cell: (one) => badge(one.level, { error: "bad", warning: "warn" }[one.level]) },
            { title: "Category", cell: (one) => one.category },
            {
              title: "What",
              wide: true,
              cell: (one) => [
                h("strong", {}, one.event ?? one.message ?? ""),
                " ",
                h("small", { class: "mono" }, details(one)),
              ],
            },
          ],
          results,
          { caption: "Log", none: "Nothing was logged at this level." },
        ),
      ),
    );
  };
  const field = (label, element) =>
    h("div", { class: "field" }, h("label", { for: element.id }, label), element);
  const level = h(
    "select",
    {
      id: freshId("level"),
      onchange: () => {
        chosen.level = level.value;
        draw();
      },
    },
    LEVELS.map((one) => h("option", { value: one, selected: one === chosen.level }, one)),
  );
  const category = h("input", {
    id: freshId("category"),
    value: chosen.category,
    list: known.id,
    placeholder: "predictor, session, http …",
    onchange: () => {
      chosen.category = category.value.trim();
      draw();
    },
  });
  const pause = h(
    "button",
    {
      type: "button",
      class: "quiet",
      "aria-pressed": "false",
      onclick: () => {
        isPaused = !isPaused;
        pause.setAttribute("aria-pressed", String(isPaused));
        fill(pause, isPaused ? "Go on" : "Pause");
        announce(isPaused ? "paused" : "live");
        if (!isPaused) draw();
      },
    },
    "Pause",
  );
  fill(
    root,
    heading("Logs", pause),
    h(
      "section",
      { class: "card", "aria-label": "Filters" },
      h("div", { class: "filters" }, field("At least", level), field("Category", category), known),
    ),
    list,
  );
  await draw();
  live.on(
    ["log", "error", "job", "session"],
    () => {
      if (!isPaused) draw();
    },
    signal,
  );
}

function details(one) {
  const told =
    one.details ??
    Object.fromEntries(
      Object.entries(one).filter(
        ([name]) => !["at", "level", "category", "event", "message", "id"].includes(name),
      ),
    );
  return Object.entries(told)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(" ");
}
