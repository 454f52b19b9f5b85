"""What transcript readers share: messages with a role, tool calls and their results.

Each harness reads its own entries (`read_entry` in its module). The formats are undocumented and
change: an unknown entry is skipped, never guessed at. Readers leave out what no person or agent
said: context that was inserted next to a prompt, talk among subagents, and bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Message = dict[str, Any]

# A message has at least one of these.
MESSAGE_KEYS: Final = ("role", "content", "text", "arguments", "output")
# Texts that clients send in the user's name.
INSERTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
)


def is_inserted(message: Message) -> bool:
    """Return whether the client wrote a message in the user's name."""
    content = message.get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, dict) else first
    return isinstance(text, str) and text.lstrip().startswith(INSERTED)


def tool_calls(calls: object) -> Iterator[Message]:
    """Yield a message for each tool call of a list."""
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            arguments = call.get("arguments", call.get("args"))
            call_id = call.get("toolCallId", call.get("id"))
            yield {
                "type": "tool_call",
                "id": call_id,
                "name": call.get("name"),
                "arguments": arguments,
            }


def tool_result(content: object, call_id: object, name: object) -> Message:
    """Return the message of a result, with the id and the tool of its call."""
    return {"type": "tool_result", "content": content, "tool_use_id": call_id, "name": name}


def without_context(text: str) -> str:
    """Return a prompt without the context that Gemini CLI puts next to it and hands back."""
    opening, closing = "<hook_context>", "</hook_context>"
    pieces: list[str] = []
    end = 0
    while (start := text.find(opening, end)) >= 0 and (stop := text.find(closing, start)) >= 0:
        pieces.append(text[end:start])
        end = stop + len(closing)
    return "".join((*pieces, text[end:])).strip() if end else text


def read_common(entry: Message) -> Iterator[Message]:
    """Yield the message with a role and a text that most programs write."""
    inner = entry.get("message")
    message = inner if isinstance(inner, dict) else entry
    if not any(key in message for key in MESSAGE_KEYS) or is_inserted(message):
        return
    # Cursor has the role outside the message.
    role = message.get("role") or entry.get("role") or message.get("type")
    said = {**message, "role": role} if role else {**message}
    if role == "user" and "content" in said:
        said["content"] = _typed(said["content"])
    yield said


def _typed(content: Any) -> Any:
    """Return what the user typed, where the client marked it."""
    if isinstance(content, list):
        return [
            {**part, "text": _typed(part["text"])}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    if not isinstance(content, str):
        return content
    _, opened, rest = content.partition("<user_query>")
    inside, closed, _ = rest.partition("</user_query>")
    return without_context(inside.strip() if opened and closed else content)


def no_own_format(entry: Message) -> None:
    """Recognise no entry: for a harness that writes the common shape, or another's."""
    return None
