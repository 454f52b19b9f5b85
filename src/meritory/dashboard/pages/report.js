import { h, fill, heading, card, badge, button, link } from "../lib/dom.js";
import { moment, words } from "../lib/format.js";
import { form, toast } from "../lib/dialog.js";
import { memoryLink } from "../lib/memories.js";

export const title = "Report";

const TEXTS = [
  ["context", "What was going on"],
  ["what_went_wrong", "What went wrong"],
  ["what_to_change", "What to do instead"],
  ["what_worked", "What worked"],
  ["reasoning", "Why"],
];

export async function render(root, { id }, { api, live, signal }) {
  const draw = async () => {
    const one = await api.get(`/api/feedback/${api.part(id)}`, {}, signal);
    if (signal.aborted) return;
    fill(
      root,
      heading(
        "Report",
        badge(words(one.signal), one.polarity > 0 ? "good" : "bad"),
        badge(words(one.status)),
        one.status === "clarification_required"
          ? button("Complete it", () => complete(api, one, draw))
          : null,
      ),
      card(
        "What was said",
        TEXTS.filter(([name]) => one[name]).map(([name, label]) => [
          h("h3", {}, label),
          h("p", { class: "memory-text" }, one[name]),
        ]),
        one.reason ? h("p", { class: "note" }, one.reason) : null,
      ),
      one.issues.length
        ? card(
            "What was not understood",
            h(
              "ul",
              {},
              one.issues.map((issue) => h("li", {}, `${issue.field}: ${issue.message}`)),
            ),
          )
        : null,
      card(
        "What became of it",
        h(
          "ul",
          {},
          h("li", {}, moment(one.at)),
          one.memory_id
            ? h(
                "li",
                {},
                "Lesson: ",
                memoryLink(one.memory_id, "open"),
                ` (reported ${one.occurrence} times)`,
              )
            : null,
          one.session_key
            ? h(
                "li",
                {},
                "Session: ",
                link(`#/sessions/${encodeURIComponent(one.session_key)}`, one.session_key),
              )
            : null,
          one.last_action
            ? h("li", {}, "About: ", h("code", {}, Object.values(one.last_action).join(" ")))
            : null,
        ),
      ),
      one.diagnosis ? card("Diagnosis", h("pre", {}, JSON.stringify(one.diagnosis, null, 2))) : null,
      one.rubric ? card("Rubric", h("pre", {}, JSON.stringify(one.rubric, null, 2))) : null,
    );
  };
  await draw();
  live.on(["feedback"], draw, signal);
}

function complete(api, one, draw) {
  form(
    "Complete the report",
    TEXTS.slice(0, 4).map(([name, label]) => ({ name, label, kind: "area", value: one[name] })),
    async (values) => {
      const told = Object.fromEntries(
        Object.entries(values).filter(([name, value]) => value && value !== one[name]),
      );
      const answer = await api.post(`/api/feedback/${api.part(one.id)}/complete`, told);
      toast(answer.message);
      draw();
    },
  );
}
