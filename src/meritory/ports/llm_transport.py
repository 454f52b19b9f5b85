"""The wire under the vendors' clients: what may leave this machine, and how much may come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx2

from meritory.domain.world import World

# Thousands of scores fit; a server that sends more is broken or hostile.
MAX_REPLY_BYTES = 1024 * 1024
# Everything else the clients would send (system, Python version, ids, whatever the environment
# tells them to add) stays here.
SENT_HEADERS = frozenset({"host", "content-type", "content-length", "accept"})
OWN_HEADERS = {"user-agent": "meritory", "accept-encoding": "identity", "connection": "close"}


class UnreadableReply(httpx2.TransportError):
    """The reply is larger than any honest one, or packed although that was not asked for."""


class GuardedTransport(httpx2.BaseTransport):
    """Sends only what is on the list, only to the address asked for, and reads a bounded reply.

    It knows no proxies, reads no environment, and keeps no connection open between calls.
    """

    def __init__(self, headers: Mapping[str, str], timeout_ms: int, world: World) -> None:
        self._headers = {**OWN_HEADERS, **headers}
        self._timeout_ms = timeout_ms
        self._world = world
        self._inner = httpx2.HTTPTransport(
            trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0)
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        deadline_ms = self._world.monotonic_ms() + self._timeout_ms
        kept = {name: value for name, value in request.headers.items() if name in SENT_HEADERS}
        # A request of its own: the clients read their own headers again when the reply is there.
        reply = self._inner.handle_request(
            httpx2.Request(
                request.method,
                request.url,
                headers={**kept, **self._headers},
                stream=request.stream,
                extensions=request.extensions,
            )
        )
        if reply.headers.get("content-encoding", "identity").lower() != "identity":
            # A small packed reply can be a huge one unpacked.
            reply.close()
            raise UnreadableReply("the reply is packed")
        return httpx2.Response(
            reply.status_code,
            headers=reply.headers,
            stream=_Bounded(reply, deadline_ms, self._world),
            extensions=reply.extensions,
        )

    def close(self) -> None:
        self._inner.close()


class _Bounded(httpx2.SyncByteStream):
    """A reply that ends at the size limit and at the deadline, however slowly it drips."""

    def __init__(self, reply: httpx2.Response, deadline_ms: float, world: World) -> None:
        self._reply = reply
        self._deadline_ms = deadline_ms
        self._world = world

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._reply.iter_raw():
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise UnreadableReply(f"the reply has more than {MAX_REPLY_BYTES} bytes")
            if self._world.monotonic_ms() > self._deadline_ms:
                raise httpx2.ReadTimeout("the reply took too long")
            yield chunk

    def close(self) -> None:
        self._reply.close()


def guarded_client(headers: Mapping[str, str], timeout_ms: int, world: World) -> httpx2.Client:
    """Return an HTTP client for one model: no redirects, no proxies, no cookies kept for others."""
    return httpx2.Client(
        transport=GuardedTransport(headers, timeout_ms, world),
        timeout=timeout_ms / 1000.0,
        follow_redirects=False,
        trust_env=False,
    )
