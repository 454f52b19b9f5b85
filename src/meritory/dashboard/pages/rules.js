import { h, fill, heading, card, badge, button, empty, freshId, link } from "../lib/dom.js";
import { ago, number, plural, words } from "../lib/format.js";
import { attempt, confirm, form, toast } from "../lib/dialog.js";

export const title = "Rules";

const STEPS = ["proposed", "warns", "blocks"];
const TONES = { proposed: "accent", warns: "warn", blocks: "bad" };

export async function render(root, params, { api, live, signal }) {
  let every = false;
  const draw = async () => {
    const { results } = await api.get("/api/rules", { every: every || null }, signal);
    if (signal.aborted) return;
    const id = freshId("every");
    const box = h("input", {
      type: "checkbox",
      id,
      checked: every,
      onchange: () => {
        every = box.checked;
        draw();
      },
    });
    fill(
      root,
      heading(
        "Rules",
        h("div", { class: "row" }, box, h("label", { for: id }, "also ended ones")),
        button("Propose a rule", () => propose(api, draw)),
      ),
      h(
        "p",
        { class: "note" },
        "Reported mistakes that come back become rules. A rule does nothing while it is proposed, then warns, then blocks; each step only after a replay over harmless actions without a false alarm.",
      ),
      results.length
        ? results.map((one) => ruleCard(one, api, draw))
        : card("None yet", empty("Nobody reported the same mistake twice.")),
    );
  };
  await draw();
  live.on(["rules", "feedback"], draw, signal);
}

function propose(api, draw) {
  form(
    "Propose a rule",
    [
      {
        name: "trigger",
        label: "What sets it off",
        required: true,
        placeholder: "Bash: git push --force*",
        help: "a tool and a pattern of its argument",
      },
      { name: "why", label: "Why", required: true, kind: "area" },
    ],
    async (values) => {
      await api.post("/api/rules", values);
      toast("Proposed; it does nothing until it is approved.");
      draw();
    },
  );
}

function ruleCard(rule, api, draw) {
  const answer = h("div", { "aria-live": "polite" });
  const act = (verb, text) => () =>
    attempt(async () => {
      await api.post(`/api/rules/${rule.id}/${verb}`, { why: "on the dashboard" });
      toast(text, {
        undo:
          verb === "undo"
            ? undefined
            : async () => {
                await api.post(`/api/rules/${rule.id}/undo`, {});
                draw();
              },
      });
      draw();
    });
  const retire = async () => {
    if (await confirm("End this rule?", rule.trigger, "End it")) await act("retire", "The rule has ended.")();
  };
  const replay = () =>
    attempt(async () => {
      const told = await api.get(`/api/rules/${rule.id}/replay`);
      fill(
        answer,
        h(
          "p",
          {},
          `Tried on ${plural(told.tried_count, "harmless action")}: ${plural(told.alarm_count, "false alarm")}.`,
        ),
        told.examples.length
          ? h(
              "ul",
              {},
              told.examples.map((text) => h("li", {}, h("code", {}, text))),
            )
          : null,
      );
    });
  const isLive = STEPS.includes(rule.state);
  return card(
    rule.trigger,
    h(
      "div",
      { class: "row" },
      STEPS.map((step) => badge(words(step), step === rule.state ? TONES[step] : "plain")),
      isLive ? null : badge(words(rule.state), "warn"),
      rule.project ? badge(rule.project) : null,
    ),
    h("p", { class: "memory-text" }, rule.text),
    h(
      "p",
      { class: "note" },
      `${plural(rule.report_count, "report")}, weight ${rule.weight.toFixed(2)}, ${number(rule.alarm_count)} false alarms in ${number(rule.replay_count)} replayed actions, ends ${ago(rule.expires_at)}. `,
      rule.memory_id ? link(`#/memories/${rule.memory_id}`, "Its lesson") : null,
    ),
    h(
      "div",
      { class: "row" },
      isLive && rule.state !== "blocks"
        ? button(
            rule.state === "proposed" ? "Let it warn" : "Let it block",
            act("approve", "It took one step up."),
          )
        : null,
      button("Replay", replay, { class: "quiet" }),
      isLive ? button("End", retire, { class: "quiet" }) : null,
      rule.events.length ? button("Undo last change", act("undo", "Taken back."), { class: "quiet" }) : null,
    ),
    answer,
    rule.events.length
      ? h(
          "details",
          {},
          h("summary", {}, "What happened to it"),
          h(
            "ul",
            { class: "timeline" },
            rule.events.map((one) =>
              h(
                "li",
                {},
                h("strong", {}, words(one.kind)),
                one.is_undone ? badge("taken back") : null,
                ` ${one.reason} `,
                h("small", {}, `${one.actor}, ${ago(one.at)}`),
              ),
            ),
          ),
        )
      : null,
  );
}
