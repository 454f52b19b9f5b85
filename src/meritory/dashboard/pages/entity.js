import { h, fill, heading, card, badge, empty, link } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { marks, memoryLink } from "../lib/memories.js";

export const title = "Entity";

export async function render(root, { id }, { api, live, signal }) {
  const draw = async () => {
    const page = await api.get(`/api/entities/${api.part(id)}`, { everywhere: true }, signal);
    if (signal.aborted) return;
    const by = new Map(page.results.map((one) => [one.id, one]));
    const shown = (ids) =>
      ids
        .filter((one) => by.has(one))
        .map((one) =>
          h(
            "li",
            {},
            memoryLink(one, by.get(one).content, 220),
            h("div", { class: "row" }, marks(by.get(one))),
          ),
        );
    fill(
      root,
      heading(
        page.entity.name,
        badge(page.entity.kind, "accent"),
        badge(plural(page.entity.memory_count, "memory", "memories")),
      ),
      page.constraints.length
        ? card("Must be kept to", h("ul", { class: "timeline" }, shown(page.constraints)))
        : null,
      Object.entries(page.aspects).map(([name, ids]) =>
        card(name || "What is known", h("ul", { class: "timeline" }, shown(ids))),
      ),
      card(
        "Depends on",
        page.depends_on.length
          ? h(
              "ul",
              {},
              page.depends_on.map((one) =>
                h("li", {}, link(`#/entities/${encodeURIComponent(one.id)}`, one.name)),
              ),
            )
          : empty("Nothing that was said."),
      ),
    );
  };
  await draw();
  live.on(["memory"], draw, signal);
}
