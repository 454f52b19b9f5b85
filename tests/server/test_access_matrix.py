"""Every route and every caller, by real requests: who is let through, and who is not.

`pytest -s tests/server/test_access_matrix.py` prints the table.
"""

from __future__ import annotations

import contextlib

import pytest
from access_kit import make_token, shown
from test_auth_matrix import real
from web_types import Served

from meritory.server.app import TABLE
from meritory.server.auth import Grant
from meritory.server.problems import Forbidden
from meritory.server.table import Route

CALLERS = ("owner", "admin", "write", "read", "narrow", "dashboard", "nobody")
MATRIX = """
GET /health                                        oawrndn
GET /openapi.json                                  oawrnd-
GET /api/memories/facets                           oawrnd-
GET /api/memories/texts                            oawr-d-
GET /api/memories/{id}/sessions                    oawr-d-
POST /api/memories/{id}/confirm                    oa--nd-
POST /api/memories/{id}/reject                     oa--nd-
POST /api/memories/{id}/merge                      oaw-nd-
GET /api/review                                    oawrnd-
POST /api/review/{item}                            oaw-nd-
GET /api/proposals                                 oawrnd-
GET /api/sessions/{key:path}/memories/{id}/why     oawr-d-
GET /api/entities/graph                            oawrnd-
GET /api/analytics/activity                        oawr-d-
POST /api/memories                                 oaw-nd-
GET /api/memories                                  oawrnd-
POST /api/memories/search                          oawrnd-
GET /api/memories/search                           oawrnd-
GET /api/memories/{id}                             oawrnd-
PATCH /api/memories/{id}                           oaw-nd-
DELETE /api/memories/{id}                          oaw-nd-
GET /api/memories/{id}/history                     oawrnd-
POST /api/memories/{id}/restore                    oaw-nd-
POST /api/memories/{id}/purge                      oa--n--
GET /api/entities                                  oawrnd-
GET /api/entities/{key:path}                       oawrnd-
POST /api/hooks/session-start                      oaw-n--
POST /api/hooks/user-prompt-submit                 oaw-n--
POST /api/hooks/delivered                          oaw-n--
POST /api/hooks/stop                               oaw-n--
POST /api/hooks/pre-compact                        oaw-n--
POST /api/hooks/session-end                        oaw-n--
POST /api/hooks/pre-tool                           oaw-n--
GET /api/rules                                     oawrnd-
POST /api/rules                                    oaw--d-
GET /api/rules/constraints                         oawr-d-
POST /api/rules/constraints/lift                   oa-----
GET /api/rules/{id}                                oawr-d-
GET /api/rules/{id}/replay                         oawr-d-
POST /api/rules/{id}/approve                       oa---d-
POST /api/rules/{id}/retire                        oa---d-
POST /api/rules/{id}/undo                          oa---d-
POST /api/feedback                                 oaw-nd-
GET /api/feedback                                  oawr-d-
GET /api/feedback/summary                          oawr-d-
GET /api/feedback/risk                             oawr-d-
GET /api/feedback/pairs                            oawr-d-
GET /api/feedback/contested                        oawr-d-
GET /api/feedback/{id}                             oawr-d-
POST /api/feedback/{id}/complete                   oaw--d-
GET /api/sessions                                  oawr-d-
GET /api/sessions/{key:path}/memories              oawr-d-
GET /api/sessions/{key:path}                       oawr-d-
DELETE /api/sessions/{key:path}                    oa-----
GET /api/timeline/{id:path}                        oawr-d-
GET /api/extraction/refusals                       oawr-d-
GET /api/extraction/refusals/{id}                  oawr-d-
POST /api/extraction/refusals/{id}/restore         oaw--d-
GET /api/predictor/status                          oawr-d-
GET /api/predictor/comparisons                     oawr-d-
GET /api/predictor/comparisons/{session_key:path}  oawr-d-
GET /api/predictor/audit/{session_key:path}        oawr-d-
GET /api/predictor/training                        oawr-d-
GET /api/predictor/drift                           oawr-d-
POST /api/predictor/train                          oa---d-
POST /api/predictor/rollback                       oa---d-
POST /api/predictor/enable                         oa---d-
POST /api/predictor/disable                        oa---d-
GET /api/predictor/calibration                     oawr-d-
POST /api/predictor/calibration                    oa---d-
GET /api/diagnostics                               o----d-
GET /api/diagnostics/{domain}                      o----d-
GET /api/pipeline/status                           o----d-
GET /api/stats                                     oawr-d-
GET /api/analytics/latency                         o----d-
GET /api/analytics/errors                          o----d-
GET /metrics                                       o----d-
GET /api/quality/probes                            o----d-
GET /api/jobs                                      oawr-d-
POST /api/jobs/{kind}/{key:path}/retry             oaw--d-
GET /api/logs                                      o----d-
GET /api/telemetry                                 oawr-d-
POST /api/telemetry/opt-in                         oaw--d-
GET /api/tokens                                    oa--nd-
POST /api/tokens                                   oa--n--
POST /api/tokens/{id}/rotate                       oa--n--
DELETE /api/tokens/{id}                            oa--n--
GET /api/quality                                   oawr-d-
GET /api/quality/merges                            oawr-d-
POST /api/quality/merges/{entry}/audit             oaw--d-
POST /api/quality/merges/{entry}/split             oaw--d-
POST /api/quality/janitor                          oa---d-
POST /api/library/scope                            oawrnd-
POST /api/library/remember-many                    oaw-nd-
POST /api/library/forget                           oaw-nd-
POST /api/library/purge                            oa--n--
POST /api/library/backup                           o------
POST /api/library/session/start                    oaw-n--
POST /api/library/session/prompt                   oaw-n--
POST /api/library/session/reply                    oaw-n--
POST /api/library/session/rate                     oaw-n--
POST /api/library/session/compact                  oaw-n--
POST /api/library/session/end                      oaw-n--
POST /api/library/update                           oaw-nd-
POST /api/library/confirm                          oa--n--
POST /api/library/reject                           oa--n--
POST /api/library/proposals                        oawrnd-
POST /api/library/undo                             oaw-nd-
POST /api/library/split                            oaw-nd-
POST /api/library/merge                            oaw-nd-
POST /api/library/review                           oawrnd-
POST /api/library/decide                           oaw-nd-
POST /api/library/recall                           oawrnd-
POST /api/library/get                              oawrnd-
POST /api/library/page                             oawrnd-
POST /api/library/history                          oawrnd-
POST /api/library/merges                           oawrnd-
POST /api/library/stats                            oawr-d-
POST /api/library/drain                            o------
POST /api/library/work-meanwhile                   oaw-n--
POST /api/library/predictor-status                 oawr-d-
POST /api/library/why                              oawr-d-
POST /api/library/capture-feedback                 oaw-n--
POST /api/library/complete-feedback                oaw-n--
POST /api/library/feedback-events                  oawr-d-
POST /api/library/feedback-event                   oawr-d-
POST /api/library/feedback-summary                 oawr-d-
POST /api/library/feedback-risk                    oawr-d-
POST /api/library/feedback-pairs                   oawr-d-
POST /api/library/contested                        oawr-d-
POST /api/library/entities                         oawrnd-
POST /api/library/describe                         oawrnd-
POST /api/library/related                          oawrnd-
POST /api/library/required                         oawrnd-
POST /api/library/reembed                          o------
POST /mcp                                          oawrnd-
POST /api/dashboard/links                          o------
POST /api/dashboard/logout                         o----d-
GET /api/live                                      o----d-
GET /dashboard/enter                               oawrndn
GET /dashboard                                     o----d-
GET /dashboard/{name:path}                         o----d-
"""


def letters(line: str) -> tuple[str, str]:
    place, _, found = line.rpartition("  ")
    return " ".join(place.split()), found.strip()


@pytest.fixture(scope="module")
def callers(daemon: Served) -> dict[str, dict[str, str]]:
    """What each caller shows, but for the browser, which may sign out."""
    made = {role: make_token(daemon, role, user="ada") for role in ("admin", "write", "read")}
    made["narrow"] = make_token(daemon, "admin", user="ada", project="api")
    return {
        "owner": daemon.bearer,
        **{name: shown(token) for name, token in made.items()},
        "nobody": {},
    }


def row(daemon: Served, callers: dict[str, dict[str, str]], route: Route) -> str:
    """A letter for every caller who is let through; without a body nothing is done to anybody."""
    browser = {**daemon.enter(), "origin": daemon.url}
    found = {
        name: daemon.ask(route.method, real(route.path), tcp=True, headers=headers).status
        for name, headers in {**callers, "dashboard": browser}.items()
    }
    assert not {429, 500, 503} & set(found.values()), (route.path, found)
    is_login = route.access == "login"
    through = {
        name: status != 403 and (status != 401 or is_login) for name, status in found.items()
    }
    return "".join(name[0] if through[name] else "-" for name in CALLERS)


def test_who_may_do_what(daemon: Served, callers: dict[str, dict[str, str]]) -> None:
    found = {f"{route.method} {route.path}": row(daemon, callers, route) for route in TABLE}
    width = max(map(len, found))
    shown_as = "\n".join(f"{place:<{width}}  {told}" for place, told in found.items())
    expected = dict(letters(line) for line in MATRIX.strip().splitlines())
    print(f"\n{', '.join(CALLERS)}\n{shown_as}\n{len(found)} routes, {len(CALLERS)} callers")
    assert found == expected


def test_the_rules_behind_the_table_hold() -> None:
    expected = dict(letters(line) for line in MATRIX.strip().splitlines())
    assert len(expected) == len(TABLE)
    for route in TABLE:
        told = expected[f"{route.method} {route.path}"]
        owner, admin, write, read, narrow, _, nobody = told
        assert owner == "o"
        # Each role may do what the one below it may.
        assert (read, write) != ("r", "-")
        assert (write, admin) != ("w", "-")
        assert narrow == "-" or admin == "a"
        assert (nobody == "n") == (route.access in ("health", "login"))
        if route.reach == "daemon" and route.access != "login":
            assert (admin, write, read, narrow) == ("-", "-", "-", "-")


@pytest.mark.parametrize(("agent", "project"), [("coder", None), (None, "api"), ("coder", "api")])
def test_a_token_is_narrow_by_its_agent_as_by_its_project(
    agent: str | None, project: str | None
) -> None:
    expected = dict(letters(line) for line in MATRIX.strip().splitlines())
    grant = Grant("token", "admin", "ada", agent, project)
    for route in TABLE:
        narrow = expected[f"{route.method} {route.path}"][4]
        with contextlib.nullcontext() if narrow == "n" else pytest.raises(Forbidden):
            grant.require(route)
    with pytest.raises(Forbidden, match="not everywhere"):
        grant.scope(None, None, None, everywhere=True)
