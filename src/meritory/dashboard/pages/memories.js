import { h, fill, heading, card, button, empty, freshId, link, loading } from "../lib/dom.js";
import { ago, number, score, words } from "../lib/format.js";
import { table } from "../lib/table.js";
import { actions, marks, memoryLink } from "../lib/memories.js";

export const title = "Memories";

const PAGE = 30;
const TYPING_MS = 200;

export async function render(root, params, { api, live, signal, announce }) {
  const chosen = { query: params.query.get("q") ?? "" };
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
    heading("Memories", link("#/quality", "Merges, to look over and split")),
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
  const made = [];
  const facet = (field, value, label) => {
    const one = button(label, () => {
      chosen[field] = chosen[field] === value ? null : value;
      show();
      draw();
    });
    made.push([one, () => chosen[field] === value]);
    return one;
  };
  const show = () => made.forEach(([one, isOn]) => one.setAttribute("aria-pressed", String(isOn())));
  const counts = (field) =>
    Object.entries(open[field])
      .filter(([name]) => name)
      .sort((a, b) => b[1] - a[1])
      .slice(0, 8)
      .map(([name, count]) =>
        facet(field, name, `${field === "project" ? name : words(name)} ${number(count)}`),
      );
  fill(
    box,
    counts("kind"),
    counts("project"),
    counts("provenance"),
    open.trust.untrusted ? facet("trust", "untrusted", `unconfirmed ${number(open.trust.untrusted)}`) : null,
    facet("gone", true, "also forgotten and superseded"),
  );
  show();
}

function listed(api, { kind, project, provenance, gone, trust }, signal, after) {
  return api.get(
    "/api/memories",
    { limit: PAGE, kind, of_project: project, everywhere: true, gone, trust, provenance, after },
    signal,
  );
}

/** Search itself knows only the project; it never finds what is forgotten. */
async function found(api, { query, project, ...chosen }, explain, signal) {
  const hits = await api.get(
    "/api/memories/search",
    { query, project, everywhere: project ? null : true, limit: PAGE, explain: explain || null },
    signal,
  );
  const fits = (one) =>
    ["kind", "provenance", "trust"].every((name) => !chosen[name] || one[name] === chosen[name]);
  return { results: hits.results.filter(fits), next: null };
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
                .filter(([, value]) => value !== "" && value !== false)
                .map(([name, value]) => `${name} ${typeof value === "number" ? score(value) : value}`)
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
