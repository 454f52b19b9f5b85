// What memories are about: as a list for everybody, and as a drawing.

import { h, s, fill, heading, card, freshId, link } from "../lib/dom.js";
import { drawing } from "../lib/charts.js";
import { clip, number } from "../lib/format.js";
import { table } from "../lib/table.js";

export const title = "Entities";

const LIMIT = 200;
const WIDTH = 760;
const HEIGHT = 460;
const STEPS = 220;

export async function render(root, params, { api, live, signal, navigate }) {
  const draw = async () => {
    const [list, graph] = await Promise.all([
      api.get("/api/entities", { limit: LIMIT, everywhere: true }, signal),
      api.get("/api/entities/graph", { limit: 60 }, signal),
    ]);
    if (signal.aborted) return;
    const kinds = [...new Set(list.results.map((one) => one.kind))].sort();
    const holder = h("div", {});
    const show = (kind) =>
      fill(
        holder,
        table(
          COLUMNS,
          list.results.filter((one) => !kind || one.kind === kind),
          { caption: "Entities", none: "Nothing yet." },
        ),
      );
    const id = freshId("kind");
    const select = h(
      "select",
      { id, onchange: () => show(select.value) },
      h("option", { value: "" }, "all"),
      kinds.map((one) => h("option", { value: one }, one)),
    );
    show("");
    fill(
      root,
      heading("Entities", h("div", { class: "row" }, h("label", { for: id }, "Kind"), select)),
      graph.nodes.length > 1
        ? card(
            "How they hang together",
            h("p", { class: "note" }, "Linked: named by the same memories. The list below has them all."),
            h(
              "div",
              {
                class: "table-box graph",
                tabindex: "0",
                role: "region",
                "aria-label": "Drawing of the entities",
              },
              picture(graph, navigate),
            ),
          )
        : null,
      card("All", holder),
    );
  };
  await draw();
  live.on(["memory"], draw, signal);
}

const COLUMNS = [
  {
    title: "Name",
    wide: true,
    cell: (one) => link(`#/entities/${encodeURIComponent(one.id)}`, clip(one.name, 90)),
    sort: (one) => one.name,
  },
  { title: "Kind", cell: (one) => one.kind, sort: (one) => one.kind },
  {
    title: "Memories",
    numeric: true,
    cell: (one) => number(one.memory_count),
    sort: (one) => one.memory_count,
  },
];

function picture(graph, navigate) {
  const at = layout(graph);
  const label = `${graph.nodes.length} entities and ${graph.edges.length} links`;
  return drawing(
    label,
    WIDTH,
    HEIGHT,
    graph.edges.map((edge) =>
      at.has(edge.source) && at.has(edge.target)
        ? s("line", {
            class: "edge",
            x1: at.get(edge.source).x,
            y1: at.get(edge.source).y,
            x2: at.get(edge.target).x,
            y2: at.get(edge.target).y,
            "stroke-width": Math.min(1 + Math.log2(edge.weight ?? 1), 5),
          })
        : null,
    ),
    graph.nodes.map((node) => {
      const { x, y } = at.get(node.id);
      const group = s(
        "g",
        { transform: `translate(${x} ${y})` },
        s("circle", { class: "node", r: 4 + Math.min(2 * Math.sqrt(node.memory_count), 12) }),
        s("text", { x: 0, y: -12, "text-anchor": "middle" }, clip(node.name, 22)),
      );
      group.addEventListener("click", () => navigate(`/entities/${encodeURIComponent(node.id)}`));
      return group;
    }),
  );
}

/** Springs along the links, repulsion between all: the same picture for the same store. */
function layout({ nodes, edges }) {
  const at = new Map(
    nodes.map((node, place) => {
      const angle = (2 * Math.PI * place) / nodes.length;
      return [node.id, { x: Math.cos(angle), y: Math.sin(angle), dx: 0, dy: 0 }];
    }),
  );
  const points = [...at.values()];
  const rest = 1 / Math.sqrt(points.length);
  for (let step = 0; step < STEPS; step += 1) {
    for (const one of points) {
      one.dx = -0.02 * one.x;
      one.dy = -0.02 * one.y;
    }
    points.forEach((one, place) =>
      points.slice(place + 1).forEach((other) => move(one, other, repulsion(rest))),
    );
    for (const edge of edges) {
      if (at.has(edge.source) && at.has(edge.target))
        move(at.get(edge.source), at.get(edge.target), attraction(rest));
    }
    settle(points, 0.12 * (1 - step / STEPS));
  }
  return fitted(at);
}

const repulsion = (rest) => (distance) => (rest * rest) / distance;
const attraction = (rest) => (distance) => -(distance * distance) / rest;

/** Moves two points along the line between them, apart for a positive force. */
function move(one, other, force) {
  const x = one.x - other.x;
  const y = one.y - other.y;
  const distance = Math.max(Math.hypot(x, y), 0.01);
  const strength = force(distance) / distance;
  one.dx += x * strength;
  one.dy += y * strength;
  other.dx -= x * strength;
  other.dy -= y * strength;
}

function settle(points, heat) {
  for (const one of points) {
    const length = Math.hypot(one.dx, one.dy) || 1;
    one.x += (one.dx / length) * Math.min(length, heat);
    one.y += (one.dy / length) * Math.min(length, heat);
  }
}

/** The same points spread over the whole drawing, with room for names at its edges. */
function fitted(at) {
  const span = (values) => [Math.min(...values), Math.max(...values)];
  const points = [...at.values()];
  const [left, right] = span(points.map((one) => one.x));
  const [top, bottom] = span(points.map((one) => one.y));
  const scale = (value, low, high, size, margin) =>
    margin + ((value - low) / Math.max(high - low, 0.01)) * (size - 2 * margin);
  return new Map(
    [...at].map(([id, one]) => [
      id,
      { x: scale(one.x, left, right, WIDTH, 80), y: scale(one.y, top, bottom, HEIGHT, 36) },
    ]),
  );
}
