"""The invitation to store memories depends on the setting and on the client's tools."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meritory import Memory
from meritory.engine import pipeline
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.packing import Served
from meritory.text.render import INVITATION

HERON = "The staging database is called heron"


def start(memory: Memory, invite: str, key: str, *, has_tools: bool) -> Served:
    """A session of a client that may have the tools."""
    services = memory.services
    session = replace(services.policy.session, invite=invite)
    policy = replace(services.policy, session=session)
    services = replace(services, policy=policy, has_tools=lambda name: has_tools and name == "x")
    request = StartRequest(key, memory.scope, "the staging database", "x")
    return pipeline.open_session(services, request, None)


@pytest.mark.parametrize(
    ("invite", "has_tools", "is_asked"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("on", False, True),
        ("off", True, False),
    ],
)
def test_the_setting_decides_before_the_client(
    memory: Memory, invite: str, has_tools: bool, is_asked: bool
) -> None:
    empty = start(memory, invite, "empty", has_tools=has_tools)
    assert (INVITATION in empty.inject, empty.injection) == (is_asked, None)
    memory.remember(HERON)
    served = start(memory, invite, "full", has_tools=has_tools)
    assert HERON in served.inject and (INVITATION in served.inject) == is_asked
    known = memory.services.store.session(memory.scope.user, "full")
    services = replace(memory.services, has_tools=lambda name: has_tools)
    services = replace(
        services,
        policy=replace(services.policy, session=replace(services.policy.session, invite=invite)),
    )
    request = StartRequest("full", memory.scope, None, "x")
    assert pipeline.open_session(services, request, known).inject == served.inject


def test_a_small_budget_goes_to_memories(memory: Memory) -> None:
    memory.remember(HERON, pinned=True)
    session = replace(memory.services.policy.session, invite="on", start_tokens=130)
    services = replace(memory.services, policy=replace(memory.services.policy, session=session))
    served = pipeline.open_session(
        services, StartRequest("small", memory.scope, "the staging database", "x"), None
    )
    assert INVITATION not in served.inject
