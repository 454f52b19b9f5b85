// Memories as every page shows them.

import { api } from "./api.js";
import { h, badge, button, link } from "./dom.js";
import { attempt, confirm, form, toast } from "./dialog.js";
import { clip } from "./format.js";

const KINDS = ["fact", "preference", "decision", "procedure", "episode", "lesson", "constraint"];
const BATCH = 100;
const known = new Map();

export function path(id) {
  return `/api/memories/${api.part(id)}`;
}

/** By id the texts of memories; what is gone says so. */
export async function texts(ids, signal) {
  const wanted = [...new Set(ids)].filter((id) => !known.has(id));
  for (let start = 0; start < wanted.length; start += BATCH) {
    const batch = wanted.slice(start, start + BATCH);
    const { results } = await api.get("/api/memories/texts", { ids: batch.join(",") }, signal);
    for (const one of results) known.set(one.id, one.content);
  }
  return new Map(ids.map((id) => [id, known.get(id) ?? "(erased)"]));
}

export function stateOf(memory) {
  if (memory.deleted_at) return ["forgotten", "bad"];
  if (memory.superseded_by) return ["superseded", "warn"];
  if (memory.trust === "untrusted") return ["unconfirmed", "warn"];
  return ["live", "good"];
}

export function marks(memory) {
  const [state, tone] = stateOf(memory);
  return [
    badge(memory.kind, "accent"),
    state === "live" ? null : badge(state, tone),
    memory.pinned ? badge("pinned", "good") : null,
    memory.project ? badge(memory.project) : null,
    memory.demotion ? badge(`demoted ${memory.demotion}`, "warn") : null,
  ];
}

export function memoryLink(id, text, length = 110) {
  return link(`#/memories/${api.part(id)}`, clip(text ?? id, length));
}

/** Changes fields in a dialog; what was changed can be taken back. */
export function edit(memory, done) {
  form(
    "Edit memory",
    [
      {
        name: "content",
        label: "Text",
        kind: "area",
        value: memory.content,
        required: true,
        maxlength: 8192,
      },
      { name: "kind", label: "Kind", kind: "select", options: KINDS, value: memory.kind },
      { name: "tags", label: "Tags", value: memory.tags.join(", "), help: "separated by commas" },
      {
        name: "importance",
        label: "Importance",
        kind: "number",
        min: 0,
        max: 1,
        step: "any",
        value: memory.importance,
      },
      {
        name: "confidence",
        label: "Confidence",
        kind: "number",
        min: 0,
        max: 1,
        step: "any",
        value: memory.confidence,
      },
      { name: "pinned", label: "Pinned: always shown", kind: "checkbox", value: memory.pinned },
    ],
    async (values) => {
      const tags = values.tags
        .split(",")
        .map((tag) => tag.trim())
        .filter(Boolean);
      await api.patch(path(memory.id), { ...values, tags });
      changed(memory.id, "Memory changed.", done);
    },
  );
}

function changed(id, text, done) {
  known.delete(id);
  toast(text, {
    undo: async () => {
      await api.post(`${path(id)}/restore`);
      known.delete(id);
      done();
    },
  });
  done();
}

export async function forget(memory, done) {
  if (!(await confirm("Forget this memory?", clip(memory.content, 300), "Forget"))) return;
  await attempt(async () => {
    await api.remove(path(memory.id), { why: "forgotten on the dashboard" });
    changed(memory.id, "Memory forgotten.", done);
  });
}

/** A person vouches for what a tool or a web page said. */
function confirmed(memory, done) {
  return attempt(async () => {
    await api.post(`${path(memory.id)}/confirm`);
    changed(memory.id, "Memory confirmed.", done);
  });
}

export function actions(memory, done) {
  if (memory.deleted_at) {
    return h(
      "div",
      { class: "row" },
      button(
        "Restore",
        () =>
          attempt(async () => {
            await api.post(`${path(memory.id)}/restore`);
            known.delete(memory.id);
            done();
          }),
        { class: "quiet" },
      ),
    );
  }
  return h(
    "div",
    { class: "row" },
    memory.trust === "untrusted"
      ? button("Confirm", () => confirmed(memory, done), {
          "aria-label": `Confirm ${clip(memory.content, 60)}`,
        })
      : null,
    button("Edit", () => edit(memory, done), {
      class: "quiet",
      "aria-label": `Edit ${clip(memory.content, 60)}`,
    }),
    button("Forget", () => forget(memory, done), {
      class: "quiet",
      "aria-label": `Forget ${clip(memory.content, 60)}`,
    }),
  );
}
