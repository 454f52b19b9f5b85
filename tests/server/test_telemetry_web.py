"""Telemetry over HTTP: the first start is noted, no agent is asked, an answer holds."""

from __future__ import annotations

import pytest
from web_types import Serve

STATE = "/api/telemetry"
ANSWER = "/api/telemetry/opt-in"


def test_the_state_from_the_first_start_to_the_answer(serve: Serve) -> None:
    served = serve()
    state = served.ask("GET", STATE).json
    assert state["install_date"] is not None
    assert (state["training_data_opt_in"], state["last_prompted_at"]) == (None, None)

    body = {"session_key": "first", "harness": "claude-code"}
    assert served.ask("POST", "/api/hooks/session-start", body).json["inject"] == ""
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
