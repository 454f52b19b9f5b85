// Lines by uPlot, the rest as drawings of our own. Each drawing also says in words what it shows.

import { h, s, fill, freshId } from "./dom.js";
import { score, signed, percent, moment } from "./format.js";

const SIZE = 12;
// A share of the limit from which on values are near to it.
const NEAR = 0.8;
const SHAPES = {
  win: () => s("circle", { cx: 6, cy: 6, r: 4.6, class: "win" }),
  loss: () => s("path", { d: "M6 1.2 11 10.6H1z", class: "loss" }),
  tie: () => s("rect", { x: 1.8, y: 1.8, width: 8.4, height: 8.4, class: "tie" }),
  excluded: () => s("circle", { cx: 6, cy: 6, r: 4.2, class: "excluded" }),
};

/** How a comparison came out: win, loss, tie or excluded. */
export function outcomeOf(comparison) {
  if (!comparison || comparison.predictor_won === null || comparison.predictor_won === undefined)
    return "excluded";
  return { 1: "win", 0: "loss" }[comparison.predictor_won] ?? "tie";
}

/** Its mark, a shape of its own beside the colour, and its name. */
export function outcome(kind, withText = true) {
  return h(
    "span",
    { class: "outcome" },
    s(
      "svg",
      { width: SIZE, height: SIZE, viewBox: `0 0 ${SIZE} ${SIZE}`, "aria-hidden": "true" },
      SHAPES[kind](),
    ),
    withText ? kind : h("span", { class: "unseen" }, kind),
  );
}

/** A drawing with a name and a description for those who cannot see it. */
export function drawing(label, width, height, ...children) {
  const id = freshId("drawing");
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-labelledby": id },
    s("title", { id }, label),
    children,
  );
}

/** How the weight is split between the baseline and the predictor. */
export function splitGauge(alpha) {
  const share = 1 - alpha;
  const width = 320;
  return drawing(
    `baseline ${percent(alpha)}, predictor ${percent(share)}`,
    width,
    46,
    s("rect", { x: 0, y: 0, width, height: 22, rx: 5, class: "gauge-base" }),
    s("rect", {
      x: 0,
      y: 0,
      width: Math.max(share * width, share > 0 ? 3 : 0),
      height: 22,
      rx: 5,
      class: "gauge-part",
    }),
    s("text", { x: 0, y: 40 }, `predictor ${percent(share)}`),
    s("text", { x: width, y: 40, "text-anchor": "end" }, `baseline ${percent(alpha)}`),
  );
}

/** Wins and losses in order of time, the success rate as a line; hovering or focusing one tells its numbers. */
export function winLoss(comparisons, onpick) {
  const list = [...comparisons].reverse();
  const tip = h("div", { class: "tooltip", hidden: true, role: "status" });
  const box = h("div", {
    class: "table-box",
    tabindex: "0",
    role: "region",
    "aria-label": "Wins and losses",
  });
  const holder = h("div", { class: "holder" }, box, tip);
  let drawn = 0;
  const draw = (room) => {
    drawn = room;
    fill(box, winLossDrawing(list, room, { tip, box, onpick }));
    // The latest are what one came for.
    box.scrollLeft = box.scrollWidth;
  };
  draw(0);
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== drawn) draw(box.clientWidth);
  }).observe(box);
  return holder;
}

function winLossDrawing(list, room, { tip, box, onpick }) {
  const left = 44;
  const gap = Math.min(Math.max((room - left - 10) / Math.max(list.length, 1), 14), 48);
  const width = Math.max(left + list.length * gap + 10, room, 320);
  const height = 150;
  const x = (place) => left + (place + 0.5) * gap;
  const y = (rate) => 12 + (1 - rate) * (height - 40);
  const rate = list.map((one, place) => `${place ? "L" : "M"}${x(place)} ${y(one.success_rate)}`).join("");
  const marks = list.map((one, place) => {
    const kind = outcomeOf(one);
    const text = describe(one, kind);
    const group = s(
      "g",
      {
        transform: `translate(${x(place) - 6} ${height - 22})`,
        tabindex: "0",
        role: "link",
        "aria-label": text,
        class: "dot",
        data: { outcome: kind },
      },
      s("rect", { x: 6 - gap / 2, y: -height, width: gap, height: height + 14, fill: "transparent" }),
      SHAPES[kind](),
    );
    const tell = () => {
      tip.hidden = false;
      fill(tip, text);
      tip.style.left = `${Math.max(Math.min(x(place) - box.scrollLeft, box.clientWidth - 240), 0)}px`;
      tip.style.top = "0";
    };
    const hush = () => {
      tip.hidden = true;
    };
    for (const name of ["mouseenter", "focus"]) group.addEventListener(name, tell);
    for (const name of ["mouseleave", "blur"]) group.addEventListener(name, hush);
    group.addEventListener("click", () => onpick?.(one));
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter") onpick?.(one);
    });
    return group;
  });
  return s(
    "svg",
    { width, height, role: "group", "aria-label": `${list.length} comparisons, oldest first` },
    [0, 0.5, 1].map((value) => [
      s("line", { x1: left, x2: width, y1: y(value), y2: y(value), class: "axis" }),
      s("text", { x: 0, y: y(value) + 4 }, percent(value)),
    ]),
    list.length ? s("path", { d: rate, class: "line" }) : null,
    marks,
  );
}

function describe(one, kind) {
  const when = moment(one.at);
  if (kind === "excluded") return `${when}: excluded (${one.reason ?? "no positive label"})`;
  return `${when}: ${kind}; predictor ${score(one.predictor_ndcg)}, baseline ${score(one.baseline_ndcg)}, margin ${signed(one.margin)}`;
}

/** A line without axes; with a `limit` it says whether values came near to it or went over it. */
export function sparkline(values, label, limit = null) {
  const width = 160;
  const height = 32;
  const known = values.filter((one) => one !== null && one !== undefined);
  if (!known.length) return h("span", { class: "note" }, "no values yet");
  const top = Math.max(...known, limit ?? 0, 1e-9);
  const step = width / Math.max(known.length - 1, 1);
  const y = (value) => height - 3 - (value / top) * (height - 6);
  const path = known
    .map((value, place) => `${place ? "L" : "M"}${(place * step).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  const last = known.at(-1);
  const peak = Math.max(...known);
  const tone = limit === null ? "" : peak >= limit ? "over" : peak >= NEAR * limit ? "near" : "";
  return drawing(
    { over: `${label}; over the limit`, near: `${label}; near to the limit` }[tone] ?? label,
    width,
    height,
    s("path", { d: path, class: `line ${tone}`.trim() }),
    s("circle", { cx: (known.length - 1) * step, cy: y(last), r: 2.5, class: tone || "gauge-part" }),
  );
}

/**
 * Lines over time. series: [{label, values, second?}], at: seconds or places; marks: [{at, label}] are vertical.
 * Returns an element that follows its width and the theme until the signal.
 */
export function lines(label, at, series, { signal, marks = [], isTime = true, height = 220 } = {}) {
  const box = h("div", { class: "chart", role: "img", "aria-label": label });
  let plot = null;
  const draw = () => {
    plot?.destroy();
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line") },
    };
    plot = new uPlot(
      {
        width: box.clientWidth || 600,
        height,
        cursor: { y: false },
        scales: { x: { time: isTime } },
        axes: [axis, { ...axis, size: 52 }],
        series: [
          {},
          ...series.map((one) => ({
            label: one.label,
            width: 2,
            spanGaps: true,
            points: { show: one.values.length < 40 },
            stroke: colour(one.second ? "--soft" : "--accent"),
            dash: one.second ? [5, 4] : undefined,
          })),
        ],
        hooks: { draw: [(chart) => drawMarks(chart, marks, colour)] },
      },
      [at, ...series.map((one) => one.values)],
      box,
    );
  };
  const gone = new AbortController();
  const end = () => {
    watch.disconnect();
    plot?.destroy();
    gone.abort();
  };
  const watch = new ResizeObserver(() => {
    // A page that is drawn anew leaves its old drawings behind.
    if (!box.isConnected) end();
    else if (plot && box.clientWidth) plot.setSize({ width: box.clientWidth, height });
  });
  requestAnimationFrame(() => {
    if (signal.aborted || !box.isConnected) return;
    draw();
    watch.observe(box);
    addEventListener("theme", draw, { signal: gone.signal });
  });
  signal.addEventListener("abort", end, { signal: gone.signal });
  return box;
}

function drawMarks(chart, marks, colour) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = colour("--warn");
  ctx.fillStyle = colour("--warn");
  ctx.setLineDash([3, 3]);
  ctx.font = `${11 * devicePixelRatio}px sans-serif`;
  for (const mark of marks) {
    const x = chart.valToPos(mark.at, "x", true);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const isLast = x > bbox.left + 0.9 * bbox.width;
    ctx.textAlign = isLast ? "right" : "left";
    ctx.fillText(mark.label, x + (isLast ? -4 : 4), bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}
