"""Embeddings over HTTP from any server that speaks OpenAI's `POST /embeddings`."""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from meritory.domain.errors import BadReply, InputError, PortError, PortTimeout
from meritory.domain.policy import EmbedderSpec
from meritory.domain.world import World
from meritory.ports.embedder import BatchEmbedder, Vectors, checked, identity
from meritory.ports.llm import HttpRefusal, check_url

MAX_ATTEMPTS = 4
FIRST_PAUSE_MS = 200.0
# A server may ask for minutes; that is too long for a memory.
MAX_PAUSE_MS = 5_000.0
# 64 vectors of 4,096 numbers written out in full stay below this.
MAX_REPLY_BYTES = 32 * 1024 * 1024
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# Servers that do not know base64 replies say so with one of these.
REFUSED_FORMAT_STATUSES = frozenset({400, 415, 422})
_HINTS = {
    401: "check the embedder's api_key",
    403: "check the embedder's api_key",
    429: "the server limits requests; try again later",
}


class _EmbedUnreachable(Exception):
    """No answer came back."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to follow: a redirect would carry the key and the texts to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class HttpEmbedder(BatchEmbedder):
    """Asks a server for vectors; `timeout_ms` bounds one batch with all its repeats."""

    def __init__(self, spec: EmbedderSpec, world: World | None = None) -> None:
        if not spec.model:
            raise InputError("the embedder has no model", hint="name one, e.g. nomic-embed-text")
        super().__init__(spec, identity("openai", spec))
        self._world = world or World()
        check_url(spec.url, "embedder", "api_key")
        self._url = spec.url.rstrip("/").removesuffix("/embeddings") + "/embeddings"
        self._server = "{0.scheme}://{0.netloc}".format(urlsplit(self._url))
        self._formats = ["base64", "float"]
        self._opener = urllib.request.build_opener(_NoRedirects)

    def __repr__(self) -> str:
        return f"HttpEmbedder(name={self.name!r}, server={self._server!r})"

    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        # Servers refuse empty inputs, and an empty text has no vector anyway.
        wanted = [at for at, text in enumerate(texts) if text.strip()]
        if not wanted:
            return np.zeros((len(texts), self.dimension), np.float32)
        reply = self._ask([texts[at] for at in wanted])
        found = checked(_vectors(reply, len(wanted)), len(wanted), self._dimension, self.name)
        self._dimension = found.shape[1]
        if len(wanted) == len(texts):
            return found
        rows = np.zeros((len(texts), found.shape[1]), np.float32)
        rows[wanted] = found
        return rows

    def _ask(self, texts: Sequence[str]) -> Any:
        deadline_ms = self._world.monotonic_ms() + self._spec.timeout_ms
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._post(texts, deadline_ms - self._world.monotonic_ms())
            except HttpRefusal as refusal:
                if refusal.status in REFUSED_FORMAT_STATUSES and len(self._formats) > 1:
                    self._formats = self._formats[1:]
                    continue
                missing = f"does the server have the model {self._spec.model!r}"
                hints = {**_HINTS, 404: f"{missing}, and is {self._url} right?"}
                failure = refusal.error(
                    self._server, self._spec.api_key, hints, "see the server's log"
                )
                if refusal.status not in RETRIED_STATUSES or attempt >= MAX_ATTEMPTS:
                    raise failure from refusal
                pause_ms = _pause_ms(attempt, refusal.retry_after)
            except _EmbedUnreachable as silence:
                failure = PortError(
                    f"no connection to the embedder: {silence}",
                    hint=f"is the server running at {self._server}?",
                )
                if attempt >= MAX_ATTEMPTS:
                    raise failure from silence
                pause_ms = _pause_ms(attempt, None)
            if self._world.monotonic_ms() + pause_ms >= deadline_ms:
                raise failure
            time.sleep(pause_ms / 1000.0)

    def _post(self, texts: Sequence[str], left_ms: float) -> Any:
        body = {
            "model": self._spec.model,
            "input": list(texts),
            "encoding_format": self._formats[0],
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._spec.api_key:
            headers["Authorization"] = f"Bearer {self._spec.api_key}"
        # The scheme was checked to be http or https when the embedder was made.
        request = urllib.request.Request(  # noqa: S310
            self._url, data=json.dumps(body).encode(), headers=headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=max(left_ms, 1.0) / 1000.0) as reply:
                raw = reply.read(MAX_REPLY_BYTES + 1)
                missing_bytes = reply.length or 0
        except urllib.error.HTTPError as error:
            with error:
                quoted = error.read(4096).decode("utf-8", "replace")
            raise HttpRefusal(error.code, quoted, error.headers.get("Retry-After")) from error
        except TimeoutError as error:
            raise self._timeout_error() from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._timeout_error() from error
            raise _EmbedUnreachable(str(reason) or type(reason).__name__) from error
        if missing_bytes and len(raw) <= MAX_REPLY_BYTES:
            raise _EmbedUnreachable("the reply broke off")
        if len(raw) > MAX_REPLY_BYTES:
            raise BadReply(f"{self._server} sent more than {MAX_REPLY_BYTES} bytes")
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BadReply(
                f"{self._server} did not answer with JSON",
                hint=f"is {self._url} an OpenAI-compatible embeddings address?",
            ) from error

    def _timeout_error(self) -> PortTimeout:
        return PortTimeout(
            f"{self._server} gave no embeddings within {self._spec.timeout_ms} ms",
            hint="look at the server's load, or use a smaller model",
        )


def _pause_ms(attempt: int, retry_after: str | None) -> float:
    """Return the pause before the next attempt: exponential, or the server's, up to a limit."""
    asked_ms = FIRST_PAUSE_MS * float(1 << (attempt - 1))
    if retry_after is not None and retry_after.strip().isdigit():
        asked_ms = max(asked_ms, float(retry_after.strip()[:6]) * 1000.0)
    return min(asked_ms, MAX_PAUSE_MS)


def _vectors(reply: Any, count: int) -> list[Vectors]:
    """Return the reply's vectors in the order of the texts."""
    data = reply.get("data") if isinstance(reply, Mapping) else None
    if not isinstance(data, list) or len(data) != count:
        found = len(data) if isinstance(data, list) else "no list"
        raise BadReply(f"the embedder's reply holds {found} of {count} vectors")
    ordered: list[Vectors | None] = [None] * count
    for place, item in enumerate(data):
        if not isinstance(item, Mapping):
            raise BadReply("the embedder's reply has an item that is not an embedding")
        index = item.get("index", place)
        if type(index) is not int or not 0 <= index < count or ordered[index] is not None:
            raise BadReply(f"the embedder's reply has a wrong index: {index!r}")
        embedding = item.get("embedding")
        try:
            if isinstance(embedding, str):
                row = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
            else:
                row = np.array(embedding if isinstance(embedding, list) else None, np.float64)
            if row.ndim != 1:
                raise ValueError("not a list of numbers")
        except (ValueError, TypeError, binascii.Error) as error:
            raise BadReply("the embedder's reply has an unreadable vector") from error
        ordered[index] = row.astype(np.float32)
    rows = [row for row in ordered if row is not None]
    if len({len(row) for row in rows}) != 1:
        raise BadReply("the embedder's reply mixes vectors of different lengths")
    return rows
