"""Tokens for tests: made by the owner, shown by whoever holds them."""

from __future__ import annotations

from typing import Any

from web_types import Reply, Served


def make_token(daemon: Served, role: str, **fields: Any) -> str:
    """A new token, made by the daemon's owner."""
    made = daemon.ask("POST", "/api/tokens", {"name": "test", "role": role, **fields})
    assert made.status == 200, made.content
    return str(made.json["token"])


def id_of(token: str) -> str:
    """The id that a token names."""
    return token.split("_")[2]


def shown(token: str) -> dict[str, str]:
    """The header with which somebody shows a token."""
    return {"authorization": f"Bearer {token}"}


class Holder:
    """Somebody elsewhere with a token."""

    def __init__(self, daemon: Served, token: str) -> None:
        self.daemon = daemon
        self.token = token

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        """One request over the network."""
        return self.daemon.ask(method, path, body, tcp=True, headers=shown(self.token))

    def verb(self, name: str, _scope: dict[str, Any] | None = None, **arguments: Any) -> Reply:
        """A verb of the Python class."""
        return self.ask("POST", f"/api/library/{name}", {**(_scope or {}), "arguments": arguments})

    def tool(self, name: str, _query: str = "", **arguments: Any) -> Any:
        """What a tool answers over MCP."""
        params = {"name": name, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        reply = self.ask("POST", f"/mcp{_query}", message)
        assert reply.status == 200, reply.content
        return reply.json["result"]


def holder(daemon: Served, role: str, **fields: Any) -> Holder:
    """Somebody with a new token."""
    return Holder(daemon, make_token(daemon, role, **fields))
