// Dialogs, toasts with an undo, and what is said to those who listen.

import { h, button, fill, freshId } from "./dom.js";

const TOAST_MS = 8_000;

/** Asks before something is done; resolves to whether it may be. */
export function confirm(title, text, label = "Yes", tone = "danger") {
  return new Promise((resolve) => {
    const id = freshId("dialog");
    const box = h("dialog", { "aria-labelledby": id });
    const close = (answer) => {
      box.close();
      box.remove();
      resolve(answer);
    };
    fill(
      box,
      h("h2", { id }, title),
      h("p", {}, text),
      h(
        "div",
        { class: "row end" },
        button("Cancel", () => close(false), { class: "quiet" }),
        button(label, () => close(true), { data: { tone } }),
      ),
    );
    box.addEventListener("cancel", () => close(false));
    document.body.append(box);
    box.showModal();
  });
}

/**
 * A form in a dialog. fields: [{name, label, value, kind: text|area|select|number|checkbox, options, ...attributes}].
 * `save(values)` may throw; the message is then shown and nothing is lost.
 */
export function form(title, fields, save, label = "Save") {
  const id = freshId("dialog");
  const box = h("dialog", { "aria-labelledby": id, class: "form" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const inputs = new Map();
  const rows = fields.map((field) => {
    const inputId = freshId("field");
    const input = control(field, inputId);
    inputs.set(field.name, [field, input]);
    return h(
      "div",
      { class: "field" },
      h("label", { for: inputId }, field.label),
      input,
      field.help ? h("small", {}, field.help) : null,
    );
  });
  const close = () => {
    box.close();
    box.remove();
  };
  const sheet = h(
    "form",
    {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        const values = Object.fromEntries(
          [...inputs].map(([name, [field, input]]) => [name, read(field, input)]),
        );
        try {
          await save(values);
          close();
        } catch (error) {
          problem.hidden = false;
          fill(problem, error.message, error.hint ? ` (${error.hint})` : "");
        }
      },
    },
    h("h2", { id }, title),
    rows,
    problem,
    h(
      "div",
      { class: "row end" },
      button("Cancel", close, { class: "quiet" }),
      h("button", { type: "submit" }, label),
    ),
  );
  box.addEventListener("cancel", close);
  box.append(sheet);
  document.body.append(box);
  box.showModal();
  return box;
}

function control(field, id) {
  const { name, label, kind = "text", options, help, value, ...attributes } = field;
  if (kind === "area") return h("textarea", { id, name, rows: 5, ...attributes, value: value ?? "" });
  if (kind === "select") {
    return h(
      "select",
      { id, name, ...attributes },
      options.map((one) => h("option", { value: one, selected: one === value }, one)),
    );
  }
  if (kind === "checkbox")
    return h("input", { id, name, type: "checkbox", checked: Boolean(value), ...attributes });
  return h("input", { id, name, type: kind, ...attributes, value: value ?? "" });
}

function read(field, input) {
  if (field.kind === "checkbox") return input.checked;
  if (field.kind === "number") return input.value === "" ? null : Number(input.value);
  return input.value;
}

/** Says what was done, and offers to take it back. */
export function toast(text, { undo, tone = "plain" } = {}) {
  const box = h("div", { class: "toast", data: { tone } }, h("span", {}, text));
  const gone = () => box.remove();
  const timer = setTimeout(gone, TOAST_MS);
  if (undo) {
    box.append(
      button(
        "Undo",
        async () => {
          clearTimeout(timer);
          try {
            await undo();
            fill(box, h("span", {}, "Taken back."));
          } catch (error) {
            fill(box, h("span", {}, `Not taken back: ${error.message}`));
          }
          setTimeout(gone, TOAST_MS / 2);
        },
        { class: "quiet" },
      ),
    );
  }
  document.getElementById("toasts").append(box);
}

/** Runs what a button does, and says what went wrong. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    toast(error.hint ? `${error.message} (${error.hint})` : error.message, { tone: "danger" });
    return undefined;
  }
}
