// Plays a harness: loads a plugin, calls its hooks in the order it is told, prints what came out.
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const [kind, file, options, steps] = process.argv.slice(2, 6);
const given = JSON.parse(options);
const results = [];
const hooks = {};
const later = globalThis.setTimeout;
// On a busy machine answers come late: a plugin waits longer here, unless that is what is tried.
globalThis.setTimeout = (work, ms, ...rest) => later(work, ms * (given.patience ?? 30), ...rest);
if (kind === "opencode") {
  const { meritory } = await import(file);
  const messages = async () => ({ data: given.history ?? [] });
  Object.assign(hooks, await meritory({ client: { session: { messages } }, directory: given.cwd }, given));
} else {
  const plugin = (await import(file)).default;
  if (plugin.register({ pluginConfig: given, on: (name, hook) => (hooks[name] = hook) }) !== undefined) {
    throw new Error("register must be synchronous");
  }
}
for (const [name, input, output] of JSON.parse(readFileSync(steps, "utf8"))) {
  if (name === "sleep") {
    await new Promise((resolve) => later(resolve, input));
    continue;
  }
  if (name === "meet") {
    // Says that it has come so far, and goes on when it may.
    writeFileSync(`${input}.here`, "");
    while (!existsSync(input)) await new Promise((resolve) => later(resolve, 20));
    continue;
  }
  const began = Date.now();
  let returned, thrown;
  try {
    returned = await hooks[name](input, output);
  } catch (error) {
    // Only here it means something: the tool is not called.
    if (name !== "tool.execute.before") throw error;
    thrown = error.message;
  }
  results.push({ name, output, returned, thrown, ms: Date.now() - began });
}
process.stdout.write(JSON.stringify({ hooks: Object.keys(hooks), results }));
// A plugin must not keep its harness alive.
later(() => process.stderr.write("still alive"), 3_000).unref();
