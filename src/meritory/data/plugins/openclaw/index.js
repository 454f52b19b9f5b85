// Meritory in OpenClaw: memories go in before the prompt, ratings come out of the reply.
// It leaves OpenClaw's own memory, and the slot for it, alone.

import { Daemon, Sessions, delivered, ended, hasTrailer, judged, stripped } from "../daemon.mjs";

// Runs that nobody typed: a schedule, a heartbeat, another session.
const OWN_TRIGGERS = new Set(["cron", "heartbeat", "memory", "overflow", "inter_session"]);

const isTyped = (ctx) => {
  const origin = ctx?.inputProvenance?.kind;
  return !OWN_TRIGGERS.has(ctx?.trigger) && (origin === undefined || origin === "external_user");
};

const keyOf = (event, ctx) => ctx?.sessionId ?? event?.sessionId ?? ctx?.sessionKey ?? event?.sessionKey;

const LIMIT_CHARS = 9_500;

// Everything shown in a session so far: OpenClaw does not keep it among the messages, so every
// prompt has it again. What was shown first stays, then the latest that has room.
const kept = ([first, ...rest]) => {
  const texts = [];
  let room = LIMIT_CHARS - first.length;
  for (const text of rest.reverse()) {
    room -= text.length + 2;
    if (room < 0) break;
    texts.unshift(text);
  }
  return [first, ...texts].join("\n\n");
};

// A failure of ours is nobody's business: the agent goes on as if we were not there.
const quietly = (hook) => async (event, ctx) => {
  try {
    return await hook(event, ctx);
  } catch {
    return undefined;
  }
};

export default {
  id: "meritory",
  name: "Meritory",
  description: "Shows agents what they learned before, and learns what helped.",

  register(api) {
    const daemon = new Daemon("openclaw", api.pluginConfig ?? {});
    const sessions = new Sessions();
    const folders = new Map();
    const on = (name, hook, timeoutMs) => api.on(name, quietly(hook), { timeoutMs });

    on(
      "before_prompt_build",
      async (event, ctx) => {
        const key = keyOf(event, ctx);
        const prompt = event.currentUserMessage ?? event.prompt;
        if (!key || !prompt?.trim() || !isTyped(ctx)) return undefined;
        const session = sessions.of(key);
        const scope = { session_key: key, cwd: ctx.workspaceDir };
        folders.set(key, ctx.workspaceDir);
        session.shown ??= [];
        const replies = [];
        if (!session.isBegun) {
          // One that went on in another process is told what it was shown there.
          const fields = { ...scope, context: prompt, receipts: true };
          const begun = await daemon.tell("session-start", fields, 2_000);
          session.isBegun = begun !== null;
          replies.push(begun);
        }
        sessions.said(key, "user", prompt);
        const asked = { ...scope, prompt, receipts: true };
        replies.push(session.isBegun ? await daemon.tell("user-prompt-submit", asked, 2_000) : null);
        session.shown.push(...(await delivered(daemon, scope, replies)));
        return session.shown.length ? { prependContext: kept(session.shown) } : undefined;
      },
      5_000,
    );

    on(
      "before_agent_finalize",
      async (event, ctx) => {
        const key = keyOf(event, ctx);
        const whole = event.lastAssistantMessage;
        if (!key || !whole) return;
        const { isBegun, turns } = sessions.of(key);
        // A prompt that no daemon took is followed by a reply all the same.
        if (turns.length) sessions.said(key, "assistant", stripped(whole));
        if (!isBegun) return;
        const body = { session_key: key, cwd: folders.get(key), last_assistant_message: whole };
        await daemon.tell("stop", body, 1_000);
      },
      3_000,
    );

    // The line with the ratings is for us, not for whoever reads the reply.
    on("message_sending", (event) => {
      const text = event.content;
      return typeof text === "string" && hasTrailer(text) ? { content: stripped(text) } : undefined;
    });
    on("reply_payload_sending", (event) => {
      const text = event.payload?.text;
      if (typeof text !== "string" || !hasTrailer(text)) return undefined;
      return { payload: { ...event.payload, text: stripped(text) } };
    });

    on(
      "before_tool_call",
      async (event, ctx) => {
        const key = keyOf(event, ctx);
        const cwd = folders.get(key) ?? ctx?.workspaceDir;
        const verdict = await judged(daemon, key, cwd, event.toolName, event.params);
        return verdict.decision === "deny" ? { block: true, blockReason: verdict.reason } : undefined;
      },
      1_000,
    );

    const finish = async (key) => {
      const cwd = folders.get(key);
      folders.delete(key);
      await ended(daemon, sessions, key, cwd);
    };
    // Without a gateway a run is all there is: nobody will say that the session is over.
    let hasGateway = false;
    on("gateway_start", () => {
      hasGateway = true;
    });
    on("agent_end", async (event, ctx) => {
      if (!hasGateway) await finish(keyOf(event, ctx));
    });
    on("session_end", async (event, ctx) => {
      // Compaction goes on with the same conversation under another id.
      if (event.reason !== "compaction") await finish(keyOf(event, ctx));
    });
    on("gateway_stop", () => Promise.all(sessions.keys().map(finish)));
  },
};
