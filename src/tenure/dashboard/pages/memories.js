import { h, fill, heading, card, button, empty, freshId, loading } from "../lib/dom.js";
import { ago, number, score, words } from "../lib/format.js";
import { table } from "../lib/table.js";
import { actions, marks, memoryLink } from "../lib/memories.js";

export const title = "Memories";

const PAGE = 30;
const TYPING_MS = 200;

export async function render(root, params, { api, live, signal, announce }) {
  const chosen = { query: params.query.get("q") ?? "", kind: null, project: null, gone: false, trust: null };
  const list = h("div", {});
  const id = freshId("search");
  const search = h("input", {
    id,
    type: "search",
    value: chosen.query,
    placeholder: "words or a question",
    autocomplete: "off",
  });
  const facets = h("div", { class: "facets", role: "group", "aria-label": "Filters" });
  const explain = h("input", { type: "checkbox", id: freshId("explain") });
  let run = 0;

  const draw = async () => {
    run += 1;
    const mine = run;
    const rows = chosen.query.trim()
      ? await found(api, chosen, explain.checked, signal)
      : await listed(api, chosen, signal);
    if (mine !== run || signal.aborted) return;
    show(list, rows, chosen, explain.checked, draw, api, signal);
    announce(`${rows.results.length} memories`);
  };

  let typing = null;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      chosen.query = search.value;
      draw();
    }, TYPING_MS);
  });
  explain.addEventListener("change", draw);
  const open = await api.get("/api/memories/facets", {}, signal);
  drawFacets(facets, open, chosen, draw);
  fill(
    root,
    heading("Memories"),
    h(
      "section",
      { class: "card", "aria-label": "Search" },
      h(
        "div",
        { class: "filters" },
        h("div", { class: "field grow" }, h("label", { for: id }, "Search"), search),
        h("div", { class: "row" }, explain, h("label", { for: explain.id }, "show the parts of each score")),
      ),
      facets,
    ),
    list,
  );
  fill(list, loading());
  await draw();
  if (params.query.get("focus") === "search") requestAnimationFrame(() => search.focus());
  live.on(["memory"], draw, signal);
}

function drawFacets(box, open, chosen, draw) {
  const one = (label, isOn, toggle) =>
    button(
      label,
      () => {
        toggle();
        drawFacets(box, open, chosen, draw);
        draw();
      },
      { "aria-pressed": String(isOn) },
    );
  const counts = (name) =>
    Object.entries(open[name] ?? {})
      .sort((a, b) => b[1] - a[1])
      .slice(0, 8);
  fill(
    box,
    counts("kind").map(([name, count]) =>
      one(`${words(name)} ${number(count)}`, chosen.kind === name, () => {
        chosen.kind = chosen.kind === name ? null : name;
      }),
    ),
    counts("project")
      .filter(([name]) => name)
      .map(([name, count]) =>
        one(`${name} ${number(count)}`, chosen.project === name, () => {
          chosen.project = chosen.project === name ? null : name;
        }),
      ),
    open.trust?.untrusted
      ? one(`unconfirmed ${number(open.trust.untrusted)}`, chosen.trust === "untrusted", () => {
          chosen.trust = chosen.trust ? null : "untrusted";
        })
      : null,
    one("also forgotten and superseded", chosen.gone, () => {
      chosen.gone = !chosen.gone;
    }),
  );
}

function listed(api, { kind, project, gone, trust }, signal, after) {
  return api.get(
    "/api/memories",
    { limit: PAGE, kind, of_project: project, everywhere: true, gone: gone || null, trust, after },
    signal,
  );
}

async function found(api, { query, kind, project }, explain, signal) {
  const hits = await api.get(
    "/api/memories/search",
    { query, project, everywhere: project ? null : true, limit: PAGE, explain: explain || null },
    signal,
  );
  return { results: kind ? hits.results.filter((one) => one.kind === kind) : hits.results, next: null };
}

function show(list, page, chosen, explain, draw, api, signal) {
  const isSearch = Boolean(chosen.query.trim());
  const columns = [
    {
      title: "Memory",
      wide: true,
      cell: (one) => [
        memoryLink(one.id, one.content, 180),
        h("div", { class: "row" }, marks(one)),
        explain && one.parts
          ? h(
              "small",
              { class: "mono" },
              Object.entries(one.parts)
                .map(([name, value]) => `${name} ${score(value)}`)
                .join(" · "),
            )
          : null,
      ],
    },
    isSearch
      ? { title: "Score", numeric: true, cell: (one) => score(one.score), sort: (one) => one.score }
      : null,
    {
      title: "Shown",
      numeric: true,
      cell: (one) => number(one.access_count),
      sort: (one) => one.access_count,
    },
    {
      title: "Useful",
      numeric: true,
      cell: (one) => one.usefulness.toFixed(2),
      sort: (one) => one.usefulness,
    },
    { title: "Learned", cell: (one) => ago(one.created_at), sort: (one) => one.created_at },
    { title: "", cell: (one) => actions(one, draw) },
  ].filter(Boolean);
  const more = page.next
    ? button(
        "Show more",
        async () => {
          const next = await listed(api, chosen, signal, page.next);
          show(
            list,
            { results: [...page.results, ...next.results], next: next.next },
            chosen,
            explain,
            draw,
            api,
            signal,
          );
        },
        { class: "quiet" },
      )
    : null;
  fill(
    list,
    card(
      isSearch ? `Found for “${chosen.query.trim()}”` : "Newest first",
      page.results.length
        ? table(columns, page.results, { caption: "Memories", rowKey: (one) => one.id })
        : empty(isSearch ? "Nothing is near to that." : "Nothing is remembered yet."),
      more,
    ),
  );
}
