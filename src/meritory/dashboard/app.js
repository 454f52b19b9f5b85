// The frame: which page is shown, how the daemon is, what went wrong lately.

import { api } from "./lib/api.js";
import { h, fill, loading, link, empty } from "./lib/dom.js";
import { ago } from "./lib/format.js";
import { toast } from "./lib/dialog.js";
import { live } from "./lib/live.js";

const PAGES = [
  ["", "overview", "Overview"],
  ["memories", "memories", "Memories"],
  ["entities", "entities", "Entities"],
  ["sessions", "sessions", "Sessions"],
  ["predictor", "predictor", "Predictor"],
  ["feedback", "feedback", "Feedback"],
  ["rules", "rules", "Rules"],
  ["quality", "quality", "Quality"],
  ["pipeline", "pipeline", "Pipeline"],
  ["logs", "logs", "Logs"],
];
// One level deeper: the path's first part and a name.
const DETAILS = {
  memories: "memory",
  sessions: "session",
  entities: "entity",
  predictor: "calibration",
  feedback: "report",
};
const HEALTH_MS = 15_000;

const main = document.getElementById("main");
let leaving = new AbortController();

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/").map(decoded);
  const params = { id: rest.join("/") || null, query: new URLSearchParams(query ?? "") };
  const listed = PAGES.find(([name]) => name === first);
  if (!listed) return { module: "missing", first, params };
  return { module: params.id && DETAILS[first] ? DETAILS[first] : listed[1], first, params };
}

/** Somebody may have typed it: a lone percent sign stands for itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function drawNav(current) {
  const nav = document.getElementById("nav");
  fill(
    nav,
    h(
      "ul",
      {},
      PAGES.map(([path, , title]) =>
        h("li", {}, h("a", { href: `#/${path}`, "aria-current": path === current ? "page" : null }, title)),
      ),
    ),
  );
  const here = nav.querySelector("[aria-current]");
  if (here) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.clientWidth) / 2;
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { module, first, params } = route();
  drawNav(first);
  const root = h("div", { class: "page", data: { page: module } });
  fill(main, root);
  fill(root, loading());
  try {
    const page = module === "missing" ? missing(first) : await import(`./pages/${module}.js`);
    if (signal.aborted) return;
    document.title = `${page.title} · Meritory`;
    const context = {
      api,
      live,
      signal,
      announce,
      navigate: (to) => {
        location.hash = to;
      },
      refresh: show,
    };
    await page.render(root, params, context);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    failed(root, error);
  }
  if (!signal.aborted) {
    root.dataset.ready = "yes";
    root.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function missing(name) {
  return {
    title: "Not found",
    render: (root) =>
      fill(
        root,
        h("h1", { tabindex: "-1" }, "There is no such page"),
        empty(`Nothing is called “${name}”. `, link("#/", "Back to the overview")),
      ),
  };
}

function failed(root, error) {
  if (error.status === 401) {
    fill(
      root,
      h("h1", { tabindex: "-1" }, "This browser is not logged in any more"),
      h("p", {}, "Run ", h("code", {}, "meritory dashboard"), " for a new link."),
    );
    return;
  }
  fill(
    root,
    h("h1", { tabindex: "-1" }, "This page could not be shown"),
    h("p", { class: "problem", role: "alert" }, error.message, error.hint ? ` (${error.hint})` : ""),
    h("button", { type: "button", onclick: show }, "Try again"),
  );
}

export function announce(text) {
  fill(document.getElementById("announcer"), text);
}

// -- health and errors, on every page --------------------------------------------------------

async function checkHealth() {
  const badge = document.getElementById("health");
  try {
    const report = await api.get("/api/diagnostics");
    badge.dataset.status = report.status;
    fill(document.getElementById("health-text"), report.status);
    badge.setAttribute("aria-label", `Health: ${report.status}, ${Math.round(100 * report.score)} of 100`);
  } catch (error) {
    badge.dataset.status = "unhealthy";
    fill(document.getElementById("health-text"), error.status === 401 ? "logged out" : "no answer");
  }
}

async function drawErrors() {
  try {
    const { results } = await api.get("/api/analytics/errors", { limit: 50 });
    fill(document.getElementById("error-count"), results.length);
    fill(
      document.getElementById("errors"),
      h("h2", {}, "Latest errors"),
      results.length
        ? h(
            "ol",
            {},
            results.map((one) =>
              h("li", {}, h("strong", {}, one.stage), ` ${one.message ?? ""} `, h("small", {}, ago(one.at))),
            ),
          )
        : empty("None. Every fallback would be listed here."),
    );
  } catch {
    fill(document.getElementById("error-count"), "?");
  }
}

function prepareFrame() {
  const panel = document.getElementById("errors");
  const opener = document.getElementById("errors-button");
  const toggle = (isOpen) => {
    panel.hidden = !isOpen;
    opener.setAttribute("aria-expanded", String(isOpen));
  };
  opener.addEventListener("click", () => toggle(panel.hidden));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) {
      toggle(false);
      opener.focus();
    }
    const isTyping = event.target.closest?.("input, textarea, select, dialog");
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      location.hash = "/memories?focus=search";
    }
  });
  // The address holds the page, so that a plain link to a place on it would leave it.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  document.getElementById("logout").addEventListener("click", async () => {
    await api.post("/api/dashboard/logout");
    location.reload();
  });
  // What a page asked for after it was drawn, and did not get.
  addEventListener("unhandledrejection", (event) => {
    const { name, status, message } = event.reason ?? {};
    if (name !== "AbortError" && status === undefined) return;
    event.preventDefault();
    if (name !== "AbortError") toast(message, { tone: "danger" });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    dispatchEvent(new CustomEvent("theme")),
  );
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      /* it holds for this page */
    }
    dispatchEvent(new CustomEvent("theme"));
  });
}

prepareFrame();
addEventListener("hashchange", show);
show();
checkHealth();
drawErrors();
live.start();
live.on(
  ["error", "job", "predictor"],
  () => {
    checkHealth();
    drawErrors();
  },
  new AbortController().signal,
);
setInterval(() => {
  if (!document.hidden) checkHealth();
}, HEALTH_MS);
