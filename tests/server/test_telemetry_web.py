"""Telemetry over HTTP: the first start is noted, an agent asks once, an answer holds."""

from __future__ import annotations

import pytest
from access_kit import holder
from web_types import Serve

from meritory.engine.observe.consent import QUESTION

STATE = "/api/telemetry"
ANSWER = "/api/telemetry/opt-in"


def test_the_state_from_the_first_start_to_the_answer(serve: Serve) -> None:
    served = serve()
    state = served.ask("GET", STATE).json
    assert state["install_date"] is not None
    assert (state["training_data_opt_in"], state["last_prompted_at"]) == (None, None)

    def begins(key: str, harness: str | None = "claude-code") -> str:
        body = {"session_key": key, "harness": harness}
        return str(served.ask("POST", "/api/hooks/session-start", body).json["inject"])

    assert begins("program", None) == ""
    assert begins("first") == QUESTION
    # The same session again, and another one on the same day.
    assert begins("first") == begins("second") == ""
    assert served.ask("GET", STATE).json["last_prompted_at"] is not None
    for enabled in (True, False):
        told = served.ask("POST", ANSWER, {"enabled": enabled})
        assert (told.status, told.json["training_data_opt_in"]) == (200, enabled)
        assert served.ask("GET", STATE).json["training_data_opt_in"] is enabled
    # One user does not answer for another.
    assert served.ask("GET", f"{STATE}?user=bob").json["training_data_opt_in"] is None


@pytest.mark.parametrize("body", [{}, {"enabled": "yes"}, {"enabled": None}, {"enabled": 1}, []])
def test_an_answer_is_a_yes_or_a_no(serve: Serve, body: object) -> None:
    served = serve()
    assert served.ask("POST", ANSWER, body).status in (400, 422)
    assert served.ask("GET", STATE).json["training_data_opt_in"] is None


def test_who_comes_by_a_token_is_not_asked(serve: Serve) -> None:
    """Their `meritory telemetry` would answer for a store of their own machine."""
    served = serve()
    elsewhere = holder(served, "write")
    for path, more in (("session-start", {}), ("user-prompt-submit", {"prompt": "And now?"})):
        body = {"session_key": f"far-{path}", "harness": "claude-code", **more}
        assert QUESTION not in elsewhere.ask("POST", f"/api/hooks/{path}", body).json["inject"]
    here = {"session_key": "near", "harness": "claude-code"}
    assert QUESTION in served.ask("POST", "/api/hooks/session-start", here).json["inject"]
