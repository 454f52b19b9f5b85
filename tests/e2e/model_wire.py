"""The four ways in which clients talk to a model: what a request offers, and how a reply looks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
MODEL = "scripted-model"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a request offers; some clients keep the tools of a server in a namespace."""

    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says: a text, or the call of a tool."""

    text: str = ""
    tool: Tool | None = None
    arguments: Json = field(default_factory=dict)
    number: int = 1

    @property
    def call_id(self) -> str:
        """The id of the call, a new one for every reply."""
        return f"call_{self.number:06d}"


class Protocol:
    """One way of talking; `path` is how its requests are known."""

    name = ""

    def is_for(self, path: str) -> bool:
        """Whether a request to this path speaks it."""
        raise NotImplementedError

    def wants_stream(self, path: str, body: Json) -> bool:
        """Whether the reply should come piece by piece."""
        return body.get("stream") is True

    def tools(self, body: Json) -> Iterator[Tool]:
        """The tools that the request offers."""
        raise NotImplementedError

    def whole(self, reply: Reply) -> Json:
        """The reply in one piece."""
        raise NotImplementedError

    def pieces(self, reply: Reply) -> Iterator[str]:
        """The reply as server-sent events."""
        raise NotImplementedError


def _event(data: Json, name: str | None = None) -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"


class AnthropicMessages(Protocol):
    """POST /v1/messages."""

    name = "anthropic"

    def is_for(self, path: str) -> bool:
        return path.endswith("/v1/messages")

    def tools(self, body: Json) -> Iterator[Tool]:
        for tool in body.get("tools") or ():
            # A deferred tool is known by its name only and cannot be called yet.
            if not tool.get("defer_loading"):
                yield Tool(tool["name"])

    def whole(self, reply: Reply) -> Json:
        block: Json = {"type": "text", "text": reply.text}
        if reply.tool:
            block = {"type": "tool_use", "id": f"toolu_{reply.call_id}", "name": reply.tool.name}
            block["input"] = reply.arguments
        return {
            **self._message(reply),
            "content": [block],
            "stop_reason": "tool_use" if reply.tool else "end_turn",
        }

    def pieces(self, reply: Reply) -> Iterator[str]:
        whole = self.whole(reply)
        block = whole["content"][0]
        if reply.tool:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
        else:
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text}
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events: tuple[Json, ...] = (
            {"type": "message_start", "message": {**self._message(reply), "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        )
        for event in events:
            yield _event(event, event["type"])

    def _message(self, reply: Reply) -> Json:
        return {
            "id": f"msg_{reply.number:06d}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 9},
        }


class ChatCompletions(Protocol):
    """POST …/chat/completions."""

    name = "chat"

    def is_for(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def tools(self, body: Json) -> Iterator[Tool]:
        for tool in body.get("tools") or ():
            if tool.get("type") == "function":
                yield Tool(tool["function"]["name"])

    def whole(self, reply: Reply) -> Json:
        message = {"role": "assistant", **self._said(reply)}
        choice = {"index": 0, "message": message, "finish_reason": self._why(reply)}
        return {**self._head(reply, "chat.completion"), "choices": [choice], "usage": self._usage()}

    def pieces(self, reply: Reply) -> Iterator[str]:
        head = self._head(reply, "chat.completion.chunk")
        deltas: tuple[tuple[Json, str | None], ...] = (
            ({"role": "assistant", "content": ""}, None),
            (self._said(reply), None),
            ({}, self._why(reply)),
        )
        for delta, reason in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            yield _event({**head, "choices": [choice]})
        yield _event({**head, "choices": [], "usage": self._usage()})
        yield "data: [DONE]\n\n"

    def _said(self, reply: Reply) -> Json:
        if not reply.tool:
            return {"content": reply.text}
        function = {"name": reply.tool.name, "arguments": json.dumps(reply.arguments)}
        call = {"index": 0, "id": reply.call_id, "type": "function", "function": function}
        return {"content": None, "tool_calls": [call]}

    def _why(self, reply: Reply) -> str:
        return "tool_calls" if reply.tool else "stop"

    def _head(self, reply: Reply, kind: str) -> Json:
        return {
            "id": f"chatcmpl-{reply.number}",
            "object": kind,
            "created": 1_700_000_000,
            "model": MODEL,
        }

    def _usage(self) -> Json:
        return {"prompt_tokens": 11, "completion_tokens": 9, "total_tokens": 20}


class Responses(Protocol):
    """POST …/responses."""

    name = "responses"

    def is_for(self, path: str) -> bool:
        return path.endswith("/responses")

    def tools(self, body: Json) -> Iterator[Tool]:
        for tool in body.get("tools") or ():
            if tool.get("type") == "function":
                yield Tool(tool["name"])
            elif tool.get("type") == "namespace":
                for inner in tool.get("tools") or ():
                    yield Tool(inner["name"], tool["name"])

    def whole(self, reply: Reply) -> Json:
        return self._response(reply, "completed", [self._item(reply, is_done=True)])

    def pieces(self, reply: Reply) -> Iterator[str]:
        place: Json = {"output_index": 0, "item_id": self._item(reply, is_done=True)["id"]}
        part: Json = {"type": "output_text", "text": "", "annotations": []}
        inner = {**place, "content_index": 0}
        events: list[Json] = [
            {"type": "response.created", "response": self._response(reply, "in_progress", [])},
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": self._item(reply, is_done=False),
            },
        ]
        if not reply.tool:
            text = reply.text
            events += [
                {"type": "response.content_part.added", **inner, "part": part},
                {"type": "response.output_text.delta", **inner, "delta": text},
                {"type": "response.output_text.done", **inner, "text": text},
                {"type": "response.content_part.done", **inner, "part": {**part, "text": text}},
            ]
        done = self._item(reply, is_done=True)
        events += [
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            {"type": "response.completed", "response": self.whole(reply)},
        ]
        for number, event in enumerate(events):
            yield _event({**event, "sequence_number": number}, event["type"])

    def _item(self, reply: Reply, *, is_done: bool) -> Json:
        status = "completed" if is_done else "in_progress"
        if reply.tool:
            item = {
                "type": "function_call",
                "id": f"fc_{reply.number:06d}",
                "call_id": reply.call_id,
                "name": reply.tool.name,
                "arguments": json.dumps(reply.arguments) if is_done else "",
                "status": status,
            }
            return {**item, "namespace": reply.tool.namespace} if reply.tool.namespace else item
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        return {
            "type": "message",
            "id": f"msg_{reply.number:06d}",
            "role": "assistant",
            "status": status,
            "content": [part] if is_done else [],
        }

    def _response(self, reply: Reply, status: str, output: list[Json]) -> Json:
        usage = {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20,
        }
        return {
            "id": f"resp_{reply.number:06d}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "model": MODEL,
            "output": output,
            "usage": usage if output else None,
        }


class GenerateContent(Protocol):
    """POST …/models/NAME:generateContent and :streamGenerateContent."""

    name = "gemini"

    def is_for(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def wants_stream(self, path: str, body: Json) -> bool:
        return path.endswith(":streamGenerateContent")

    def tools(self, body: Json) -> Iterator[Tool]:
        for group in body.get("tools") or ():
            for tool in group.get("functionDeclarations") or ():
                yield Tool(tool["name"])

    def whole(self, reply: Reply) -> Json:
        part: Json = {"text": reply.text}
        if reply.tool:
            part = {"functionCall": {"name": reply.tool.name, "args": reply.arguments}}
        content = {"role": "model", "parts": [part]}
        return {
            "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": 11,
                "candidatesTokenCount": 9,
                "totalTokenCount": 20,
            },
            "modelVersion": MODEL,
        }

    def pieces(self, reply: Reply) -> Iterator[str]:
        yield _event(self.whole(reply))


PROTOCOLS: tuple[Protocol, ...] = (
    AnthropicMessages(),
    ChatCompletions(),
    Responses(),
    GenerateContent(),
)


def protocol_of(path: str) -> Protocol | None:
    """The protocol that requests to this path speak."""
    for protocol in PROTOCOLS:
        if protocol.is_for(path):
            return protocol
    return None


def texts(value: Any) -> Iterator[str]:
    """Every string inside a JSON value, in order, keys apart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
