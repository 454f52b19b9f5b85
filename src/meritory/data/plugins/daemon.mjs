// How the plugins reach Meritory's daemon: over its socket, with short waits, and never in the way.
// The same file stands in both plugins, for each is loaded from its own folder.

import { spawn } from "node:child_process";
import { lstat, mkdir, readFile, readdir, rename, stat, writeFile } from "node:fs/promises";
import http from "node:http";
import os from "node:os";
import path from "node:path";

const REPLY_LIMIT_CHARS = 1_000_000;
const TEXT_LIMIT_CHARS = 200_000;
const TURNS_LIMIT_COUNT = 200;
const START_PAUSE_MS = 30_000;
const GUARD_WAIT_MS = 250;
const VALUE_LIMIT_CHARS = 8_000;
const SLOW = new Error("the daemon took too long");
// As in the hook's spool.py, whose files the daemon takes as well.
const KEPT_LIMIT_BYTES = 32_768;
const KEPT_LIMIT_COUNT = 1_000;
const KEPT_TURN_LIMIT_CHARS = 4_000;
let keptCount = 0;

// <!--mf CODE m1=0.8--> and <memory-feedback>{...}</memory-feedback>, with a code fence around it.
const TRAILERS =
  /\s*(?:```[a-z]*\s*)?(?:<!--\s*mf\b(?:[^<\n]|\n(?!\s*\n)){0,2048}?-->|<memory[-_]feedback>[^]{0,2048}?<\/memory[-_]feedback>)(?:\s*```)?/gi;

export const hasTrailer = (text) => stripped(text) !== text;
export const stripped = (text) => text.replace(TRAILERS, "");

// The content of a file for an event, empty for one that is not kept: the ratings of a reply, or an
// end with as many of its last turns as a file may hold, because there is no transcript to name.
const kept = (event, body) => {
  if (event === "stop") {
    const ratings = body.last_assistant_message.match(TRAILERS)?.join("\n");
    return ratings ? JSON.stringify({ event, body: { ...body, last_assistant_message: ratings } }) : "";
  }
  if (event !== "session-end") return "";
  // By way of bytes, which mends a character that is cut in half: the daemon refuses those.
  const cut = (text) => Buffer.from(text.slice(-KEPT_TURN_LIMIT_CHARS)).toString();
  const transcript = body.transcript.map(({ role, text }) => ({ role, text: cut(text) }));
  const content = () => JSON.stringify({ event, body: { ...body, transcript } });
  while (transcript.length && Buffer.byteLength(content()) > KEPT_LIMIT_BYTES) transcript.shift();
  return content();
};

export class Daemon {
  #home;
  #command;
  #harness;
  #startedAt = -START_PAUSE_MS;

  constructor(harness, options = {}) {
    const given = options.home || process.env.MERITORY_HOME || path.join(os.homedir(), ".meritory");
    this.#home = given.replace(/^~(?=\/|$)/, os.homedir());
    this.#command = options.daemon ?? ["meritory", "up", "--detached"];
    this.#harness = harness;
  }

  // What the daemon answers, null when it is down, slow or refuses: the agent goes on without.
  async tell(event, body, timeoutMs) {
    const whole = { ...body, harness: this.#harness, relayed: true };
    const content = JSON.stringify({ ...whole, waits_until_ms: Date.now() + timeoutMs });
    const reply = await this.#ask("POST", `/api/hooks/${event}`, content, timeoutMs);
    if (reply === undefined) await this.#keep(event, whole).catch(() => {});
    return reply ?? null;
  }

  // Sees to it that the daemon runs by the time that it is needed.
  async wake() {
    await this.#ask("GET", "/health", "", 1_000);
  }

  // Starts the daemon without waiting for it; the next event finds it.
  start() {
    if (Date.now() - this.#startedAt < START_PAUSE_MS) return;
    this.#startedAt = Date.now();
    try {
      const [program, ...words] = this.#command;
      const child = spawn(program, words, { detached: true, stdio: "ignore", cwd: os.homedir() });
      child.on("error", () => {});
      child.unref();
    } catch {
      // Not even that: the agent goes on without.
    }
  }

  // Writes an end or ratings into a file that the daemon takes when it runs again.
  async #keep(event, body) {
    const content = kept(event, body);
    if (!content) return;
    await mkdir(this.#home, { recursive: true, mode: 0o700 });
    // The daemon refuses a folder that others can read and that is not empty.
    if ((await stat(this.#home)).mode & 0o077) return;
    const folder = path.join(this.#home, "spool");
    await mkdir(folder, { recursive: true, mode: 0o700 });
    if ((await readdir(folder)).length >= KEPT_LIMIT_COUNT) return;
    const at = `${Date.now()}${String(keptCount++ % 1_000_000).padStart(6, "0")}`;
    const name = `${at.padStart(20, "0")}-${process.pid}.json`;
    const unfinished = path.join(folder, `.${name}`);
    await writeFile(unfinished, content, { mode: 0o600, flag: "wx" });
    await rename(unfinished, path.join(folder, name));
  }

  // What the daemon answers, null when it refuses, undefined when it could not take the request.
  async #ask(method, route, content, timeoutMs) {
    try {
      const place = JSON.parse(await readFile(path.join(this.#home, "daemon.json"), "utf8"));
      return await this.#send(await this.#target(place, method, route, content), content, timeoutMs);
    } catch (error) {
      if (error !== SLOW) this.start();
      return undefined;
    }
  }

  async #target(place, method, route, content) {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(content) };
    if (place.socket) {
      // One left over from a daemon that is gone may be somebody else's by now.
      if ((await lstat(place.socket)).uid !== process.getuid()) throw new Error("another user's socket");
      return { method, path: route, headers, socketPath: place.socket };
    }
    // No socket on this machine: whoever asks has to show that they can read the owner's files.
    const url = new URL(place.url);
    const token = await readFile(path.join(this.#home, "token"), "ascii");
    headers.authorization = `Bearer ${token.trim()}`;
    return { method, path: route, headers, host: url.hostname, port: url.port };
  }

  #send(target, content, timeoutMs) {
    return new Promise((resolve, reject) => {
      const request = http.request(target, (reply) => {
        let text = "";
        reply.setEncoding("utf8");
        reply.on("data", (piece) => {
          if (text.length < REPLY_LIMIT_CHARS) text += piece;
        });
        reply.on("error", fail);
        reply.on("end", () => {
          clearTimeout(timer);
          if (reply.statusCode >= 500 || reply.statusCode === 429) return reject(SLOW);
          try {
            resolve(reply.statusCode === 200 ? JSON.parse(text) : null);
          } catch {
            resolve(null);
          }
        });
      });
      const fail = (error) => {
        clearTimeout(timer);
        reject(error);
        request.destroy();
      };
      const timer = setTimeout(fail, timeoutMs, SLOW);
      request.on("error", fail);
      request.end(content);
    });
  }
}

// What was said in each session since the plugin was loaded: the daemon learns from it at the end.
export class Sessions {
  #all = new Map();

  of(key) {
    if (!this.#all.has(key)) {
      const fresh = { isBegun: false, isForgotten: false, isResumed: false, turns: [], last: null };
      this.#all.set(key, fresh);
    }
    return this.#all.get(key);
  }

  said(key, role, text) {
    const { turns } = this.of(key);
    turns.push({ role, text: text.slice(0, TEXT_LIMIT_CHARS) });
    let size = turns.reduce((sum, turn) => sum + turn.text.length, 0);
    while (turns.length > TURNS_LIMIT_COUNT || (size > TEXT_LIMIT_CHARS && turns.length > 1)) {
      size -= turns.shift().text.length;
    }
  }

  taken(key) {
    const session = this.#all.get(key);
    this.#all.delete(key);
    return session;
  }

  keys() {
    return [...this.#all.keys()];
  }
}

// Tells the prompt, which begins a session that the daemon does not know, and returns what to show.
export async function shownFor(daemon, sessions, key, cwd, prompt) {
  const session = sessions.of(key);
  const scope = { session_key: key, cwd };
  const replies = [];
  if (session.isForgotten) {
    // Compaction took away what was shown at the beginning.
    const fields = { ...scope, context: prompt, source: "compact", receipts: true };
    const again = await daemon.tell("session-start", fields, 2_000);
    session.isForgotten = again === null;
    replies.push(again);
  } else if (session.isResumed) {
    // What was shown at the beginning is still there, so it is not shown once more.
    await daemon.tell("session-start", { ...scope, source: "resume" }, 2_000);
    session.isResumed = false;
  }
  sessions.said(key, "user", prompt);
  const found = await daemon.tell("user-prompt-submit", { ...scope, prompt, receipts: true }, 2_000);
  session.isBegun ||= found !== null;
  replies.push(found);
  return (await delivered(daemon, scope, replies)).join("\n\n");
}

// Reports replies as delivered, without which they do not count as shown; returns their texts.
export async function delivered(daemon, scope, replies) {
  const shown = replies.filter((reply) => reply?.inject);
  const receipt = shown.map((reply) => reply.receipt).join(" ").trim();
  if (receipt) await daemon.tell("delivered", { ...scope, receipt }, 1_000);
  return shown.map((reply) => reply.inject);
}

// Tells that the agent is about to forget what it was shown.
export async function forgetting(daemon, sessions, key, cwd) {
  if (!key) return;
  const session = sessions.of(key);
  await daemon.tell("pre-compact", { session_key: key, cwd, transcript: session.turns }, 1_500);
  session.isForgotten = true;
}

export async function ended(daemon, sessions, key, cwd) {
  const session = sessions.taken(key);
  if (!session?.isBegun && !session?.turns.length) return;
  await daemon.tell("session-end", { session_key: key, cwd, transcript: session.turns }, 1_500);
}

// Asks whether a tool may be called; a guard that is away or slow lets everything through.
export async function judged(daemon, key, cwd, tool, args) {
  if (!key || !tool) return { decision: "allow" };
  const slim = ([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
    return [name, text.slice(0, VALUE_LIMIT_CHARS)];
  };
  const given = Object.fromEntries(Object.entries(args ?? {}).map(slim));
  const body = { session_key: key, cwd, tool_name: tool, tool_input: given };
  return (await daemon.tell("pre-tool", body, GUARD_WAIT_MS)) ?? { decision: "allow" };
}
