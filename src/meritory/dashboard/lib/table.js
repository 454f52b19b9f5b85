// Tables that become cards on a phone, and can be sorted by their heads.

import { h, fill, empty } from "./dom.js";

/**
 * columns: [{title, cell(row), sort?(row), numeric?, wide?}], rows, {caption, none, onrow}.
 * `caption` names the table for those who cannot see it.
 */
export function table(columns, rows, { caption, none = "Nothing here yet.", rowKey } = {}) {
  if (!rows.length) return empty(none);
  const body = h("tbody", {});
  const heads = columns.map((column, place) => {
    const attributes = { scope: "col", class: column.numeric ? "number" : null };
    if (!column.sort) return h("th", attributes, column.title);
    const head = h("th", { ...attributes, "aria-sort": "none" });
    head.append(h("button", { type: "button", class: "sort", onclick: () => order(place) }, column.title));
    return head;
  });
  let direction = 1;
  let by = -1;

  function draw(list) {
    fill(
      body,
      list.map((row) =>
        h(
          "tr",
          { data: rowKey ? { key: rowKey(row) } : {} },
          columns.map((column) =>
            h(
              "td",
              {
                class: [column.numeric && "number", column.wide && "wide"].filter(Boolean).join(" ") || null,
                "data-title": column.title,
              },
              column.cell(row),
            ),
          ),
        ),
      ),
    );
  }

  function order(place) {
    direction = by === place ? -direction : 1;
    by = place;
    heads.forEach((head, at) => {
      if (columns[at].sort)
        head.setAttribute("aria-sort", at !== place ? "none" : direction > 0 ? "ascending" : "descending");
    });
    const value = columns[place].sort;
    draw([...rows].sort((one, other) => direction * compare(value(one), value(other))));
  }

  draw(rows);
  return h(
    "div",
    { class: "table-box", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body),
  );
}

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return 1;
  if (other === null || other === undefined) return -1;
  return one < other ? -1 : 1;
}
