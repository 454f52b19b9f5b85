"""The official client against the real server: both eras, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp_kit import PROJECT, STATELESS, environment, injected

from mcp import Client, MCPError, StdioServerParameters
from meritory.api.client import Daemon
from meritory.mcp.table import TOOLS

Scenario = Callable[[Client], Awaitable[None]]
WAYS = [(road, mode) for road in ("stdio", "http") for mode in ("legacy", "auto")]
LAST_HANDSHAKE = "2025-11-25"


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way))
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    return tuple(request.param)


def run(daemon: Daemon, way: tuple[str, str], scenario: Scenario, user: str) -> None:
    """Connects as a user of its own, so that every way finds the same empty memory."""

    async def over_stdio() -> None:
        command = ["-P", "-m", "meritory.mcp.stdio", "--home", str(daemon.home)]
        server = StdioServerParameters(
            command=sys.executable,
            args=[*command, "--project", PROJECT, "--user", user],
            env=environment(),
        )
        async with Client(server, mode=way[1], read_timeout_seconds=30) as client:
            await scenario(client)

    async def over_http() -> None:
        token = (daemon.home / "token").read_text().strip()
        url = f"{daemon.url}/mcp?project={PROJECT}&user={user}"
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http,
            Client(
                streamable_http_client(url, http_client=http),
                mode=way[1],
                read_timeout_seconds=30,
            ) as client,
        ):
            await scenario(client)

    asyncio.run(over_stdio() if way[0] == "stdio" else over_http())


async def called(client: Client, name: str, **arguments: Any) -> Any:
    """The structured part of a call that went well; the text says the same to older clients."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert result.content[0].type == "text"
    assert result.content[0].text
    return result.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    assert result.structured_content is None
    return str(result.content[0].text)


def without_marks(told: Any) -> Any:
    """A result without its marks, which are new for every call."""
    return {name: value for name, value in told.items() if name not in ("notice", "end")}


def test_it_introduces_itself_and_its_tools(daemon: Daemon, way: tuple[str, str]) -> None:
    async def scenario(client: Client) -> None:
        wanted = STATELESS if way[1] == "auto" else LAST_HANDSHAKE
        assert client.protocol_version == wanted
        assert client.server_info is not None
        assert client.server_info.name == "meritory"
        assert "-1 (misled)" in (client.instructions or "")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [tool.name for tool in TOOLS]
        always = [name for name, tool in tools.items() if tool.meta]
        assert always == ["memory_store", "memory_feedback"]
        for name, tool in tools.items():
            hints = tool.annotations
            assert hints is not None
            reads = name in (
                *("memory_search", "memory_get", "memory_explain"),
                *("describe_entity", "prevention_rules"),
            )
            assert hints.read_only_hint is reads
            assert hints.destructive_hint is (name == "memory_forget")
            assert hints.idempotent_hint is (name != "capture_feedback")
            assert hints.open_world_hint is False
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == [
            "meritory://memory/{id}",
            "meritory://session/{key}",
        ]

    run(daemon, way, scenario, "intro")


def test_a_memory_is_stored_found_shown_and_forgotten(daemon: Daemon, way: tuple[str, str]) -> None:
    user = f"life-{'-'.join(way)}"

    async def scenario(client: Client) -> None:
        claim = "The staging database of the shop is called heron"
        stored = await called(
            client, "memory_store", content=claim, kind="fact", tags=["db"], about=["src/db.py"]
        )
        assert stored["outcome"] == "stored"
        again = await called(client, "memory_store", content=claim, about=["src/db.py"])
        assert (again["outcome"], again["id"]) == ("duplicate", stored["id"])
        found = await called(client, "memory_search", query="which database is for staging?")
        assert [hit["content"] for hit in found["results"]] == [f"| {claim}"]
        assert 0 < found["results"][0]["score"] <= 1
        shown = (await called(client, "memory_get", id=stored["id"][:14]))["memory"]
        assert shown["id"] == stored["id"]
        assert (shown["provenance"], shown["project"]) == ("assistant_derived", PROJECT)
        known = await called(client, "describe_entity", entity="src/db.py")
        assert [one["id"] for one in known["memories"]] == [stored["id"]]
        alias = await called(client, "describe_reliability_entity", entity="src/db.py")
        assert without_marks(alias) == without_marks(known)
        gone = await called(client, "memory_forget", id=stored["id"], why="renamed")
        assert gone["forgotten"] is True
        assert await called(client, "memory_forget", id=stored["id"]) == gone
        assert (await called(client, "memory_search", query="staging database"))["results"] == []

    run(daemon, way, scenario, user)


def test_ratings_and_explanations_need_only_the_code(daemon: Daemon, way: tuple[str, str]) -> None:
    user, key = f"rates-{'-'.join(way)}", f"session {way}"
    started = injected(daemon, key, "Deploys of the shop go out on Thursdays", user)
    code, shown = started["injection"], started["memories"][0]

    async def scenario(client: Client) -> None:
        rated = await called(
            client, "memory_feedback", injection=code.upper(), ratings={"m1": 0.8, "m9": 1}
        )
        assert rated["accepted"] == 1
        assert rated["ignored"] == [{"name": "m9", "reason": "not shown in this session"}]
        why = await called(client, "memory_explain", id="m1", injection=code)
        assert (why["id"], why["was_injected"]) == (shown["id"], True)
        assert why["session"] == key
        again = await called(client, "memory_explain", id=shown["id"], session=key)
        assert without_marks(again) == without_marks(why)
        wrong = await refused(client, "memory_feedback", injection="0000000000", ratings={"m1": 1})
        assert "code" in wrong

    run(daemon, way, scenario, user)
    path = f"/api/sessions/{key.replace(' ', '%20')}/memories?user={user}"
    rows = daemon.request("GET", path)["results"]
    assert [row["agent_relevance_score"] for row in rows if row["handle"] == "m1"] == [0.8]


def test_resources_are_paged_and_read(daemon: Daemon, way: tuple[str, str]) -> None:
    user = f"pages-{'-'.join(way)}"
    items = [{"content": f"note {n} of the shop", "on_similar": "keep"} for n in range(70)]
    daemon.request("POST", "/api/memories", {"memories": items, "user": user, "project": PROJECT})
    started = injected(daemon, f"a/b ü {user}", "Shelves are counted on Mondays", user)

    async def scenario(client: Client) -> None:
        found: list[Any] = []
        page = await client.list_resources()
        found += page.resources
        while page.next_cursor:
            page = await client.list_resources(cursor=page.next_cursor)
            found += page.resources
        uris = [str(one.uri) for one in found]
        assert len(set(uris)) == len(uris) == 72
        assert sum(uri.startswith("meritory://session/") for uri in uris) == 1
        memory = (await client.read_resource(uris[-2])).contents[0]
        assert re.search(r"note \d+ of the shop\n", memory.text)
        session = (await client.read_resource(uris[-1])).contents[0]
        assert started["memories"][0]["id"] in session.text
        assert f"a/b ü {user}" in session.text
        for uri in (
            "meritory://memory/0000nobody",
            "meritory://nothing/x",
            "meritory://session/%FF",
        ):
            with pytest.raises(MCPError) as refusal:
                await client.read_resource(uri)
            assert refusal.value.error.code == (-32602 if way[1] == "auto" else -32002)
        with pytest.raises(MCPError) as refusal:
            await client.list_resources(cursor="made up")
        assert refusal.value.error.code == -32602

    run(daemon, way, scenario, user)


def test_what_a_tool_cannot_do_is_told_to_the_agent(daemon: Daemon, way: tuple[str, str]) -> None:
    async def scenario(client: Client) -> None:
        assert "`query`" in await refused(client, "memory_search")
        assert "1 to 20" in await refused(client, "memory_search", query="x", limit=99)
        assert "no memory" in await refused(client, "memory_get", id="0000nobody")
        secret = "the key is " + "AKIA" + "IOSFODNN7EXAMPLQ"
        assert "secret" in await refused(client, "memory_store", content=secret)
        assert "origin" in await refused(client, "memory_store", content="x", origin="user")
        assert "injection" in await refused(client, "memory_explain", id="0000nobody")
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("memory_everything", {})
        assert unknown.value.error.code == -32602

    run(daemon, way, scenario, "wrong")


def test_many_calls_at_once_each_get_their_own_answer(daemon: Daemon, way: tuple[str, str]) -> None:
    async def scenario(client: Client) -> None:
        texts = [f"shelf {n} holds item {n * 7}" for n in range(12)]
        stored = await asyncio.gather(
            *(called(client, "memory_store", content=text, origin="tool") for text in texts)
        )
        marked = [f"| {text}" for text in texts]
        assert [one["memory"]["content"] for one in stored] == marked
        assert {one["memory"]["trust"] for one in stored} == {"untrusted"}
        shown = await asyncio.gather(
            *(called(client, "memory_get", id=one["id"]) for one in stored)
        )
        assert [one["memory"]["content"] for one in shown] == marked

    run(daemon, way, scenario, f"many-{'-'.join(way)}")


def test_the_schemas_are_sound_and_small() -> None:
    from jsonschema import Draft202012Validator

    for tool in TOOLS:
        told = tool.described()
        for name in ("inputSchema", "outputSchema"):
            if name in told:
                Draft202012Validator.check_schema(told[name])
        if tool.is_shown_always:
            assert len(json.dumps(told)) < 3_000
