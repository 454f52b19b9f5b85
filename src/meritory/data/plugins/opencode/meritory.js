// Meritory in OpenCode: memories go in with the user's message, ratings come out of the reply.
// OpenCode runs it through the small file that `meritory connect opencode` writes.

import { Daemon, Sessions, ended, forgetting, hasTrailer, judged, shownFor, stripped } from "../daemon.mjs";

const IDLE_END_MS = 30 * 60_000;
const HISTORY_WAIT_MS = 1_000;
const MARK = "[meritory notes ";

// A failure of ours is nobody's business: the agent goes on as if we were not there.
const quietly = (hook) => async (...given) => {
  try {
    await hook(...given);
  } catch {
    // Nothing to be done about it here; `meritory doctor` says what is wrong.
  }
};

// Whether an earlier run of OpenCode showed something in this session: it is among its messages.
const wasShown = async (client, sessionID) => {
  const late = new Promise((resolve) => setTimeout(resolve, HISTORY_WAIT_MS, { data: [] }).unref?.());
  const { data } = await Promise.race([client.session.messages({ path: { id: sessionID } }), late]);
  return data.some(({ parts }) => parts.some((part) => part.synthetic && part.text?.includes(MARK)));
};

export const meritory = async ({ client, directory, worktree }, options = {}) => {
  const daemon = new Daemon("opencode", options);
  const sessions = new Sessions();
  // Sessions that an agent opened for its own helpers: their prompts are not the user's.
  const inner = new Map();
  // Warnings for calls that are under way: they are told with what comes back.
  const warnings = new Map();
  // Sessions whose whole story is known, because they began here or were looked up.
  const known = new Set();
  const timers = new Map();
  const cwd = directory || worktree || process.cwd();
  daemon.wake();

  const finish = async (key) => {
    clearTimeout(timers.get(key));
    timers.delete(key);
    await ended(daemon, sessions, key, cwd);
  };

  // OpenCode has no end of a session: one that nobody goes on with is over.
  const finishLater = (key) => {
    clearTimeout(timers.get(key));
    const timer = setTimeout(() => quietly(finish)(key), IDLE_END_MS);
    timer.unref?.();
    timers.set(key, timer);
  };

  const reply = async (key, text) => {
    sessions.of(key).last = null;
    await daemon.tell("stop", { session_key: key, cwd, last_assistant_message: text }, 1_000);
  };

  const onEvent = {
    "session.created": ({ info }) => {
      known.add(info?.id);
      if (info?.parentID) inner.set(info.id, info.parentID);
    },
    "session.deleted": async ({ info }) => {
      inner.delete(info?.id);
      await finish(info?.id);
    },
    // The turn is over; a reply with ratings was told as soon as it was there.
    "session.idle": async ({ sessionID }) => {
      if (inner.has(sessionID)) return;
      const session = sessions.of(sessionID);
      if (!session.isBegun && !session.turns.length) return;
      if (session.last !== null) await reply(sessionID, session.last);
      finishLater(sessionID);
    },
  };

  return {
    "chat.message": quietly(async ({ sessionID }, { message, parts }) => {
      if (inner.has(sessionID)) return;
      const texts = parts.filter((part) => part.type === "text" && !part.synthetic && part.text);
      const prompt = texts.map((part) => part.text).join("\n");
      if (!prompt.trim()) return;
      if (!known.has(sessionID)) {
        known.add(sessionID);
        sessions.of(sessionID).isResumed = await wasShown(client, sessionID).catch(() => false);
      }
      const text = await shownFor(daemon, sessions, sessionID, cwd, prompt);
      if (!text) return;
      // Parts are ordered by their ids: ours comes behind the last one.
      const last = parts.map((part) => part.id).sort().at(-1) ?? "prt_";
      const place = { id: `${last}t`, sessionID, messageID: message.id };
      parts.push({ ...place, type: "text", synthetic: true, text });
    }),

    "experimental.text.complete": quietly(async ({ sessionID }, output) => {
      if (inner.has(sessionID)) return;
      const whole = output.text;
      const shown = stripped(whole);
      const session = sessions.of(sessionID);
      // A prompt that no daemon took is followed by a reply all the same.
      if (session.turns.length) sessions.said(sessionID, "assistant", shown);
      if (session.isBegun) session.last = whole;
      if (!hasTrailer(whole)) return;
      output.text = shown;
      if (session.isBegun) await reply(sessionID, whole);
    }),

    // The only way to keep a tool from being called is to throw, so this one is not quiet.
    "tool.execute.before": async ({ tool, sessionID, callID }, output) => {
      const key = inner.get(sessionID) ?? sessionID;
      const verdict = await judged(daemon, key, cwd, tool, output?.args).catch(() => ({}));
      if (verdict.decision === "deny") throw new Error(verdict.reason);
      if (verdict.decision === "warn" && callID) warnings.set(callID, verdict.reason);
    },

    "tool.execute.after": quietly(async ({ callID }, output) => {
      const warning = warnings.get(callID);
      warnings.delete(callID);
      if (warning && typeof output?.output === "string") output.output += `\n\n${warning}`;
    }),

    "experimental.session.compacting": quietly(({ sessionID }) => forgetting(daemon, sessions, sessionID, cwd)),

    event: quietly(async ({ event }) => onEvent[event.type]?.(event.properties ?? {})),

    dispose: quietly(async () => {
      await Promise.all(sessions.keys().map(finish));
    }),
  };
};
