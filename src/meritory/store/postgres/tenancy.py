"""The walls between tenants: two roles without any other rights, and row-level security.

Whoever logs in takes the role `meritory_app` before anything else: its statements see and touch the
rows of one tenant, the one named by the setting `meritory.tenant`, and none at all while none is
named. For the few questions about all tenants together there is `meritory_steward`, which may see
the job queue, and of memories their owners and numbers, but no text. Superusers and owners of
tables are above such walls in PostgreSQL; that is why the role is taken, and security forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

APP, STEWARD = "meritory_app", "meritory_steward"
SETTING = "meritory.tenant"
# What the steward may do with tables of tenants, and with which columns.
_STEWARDS = {
    "tenants": "SELECT",
    "jobs": "SELECT, UPDATE",
    "memories": 'SELECT ("user", row, id)',
    "memory_stats": 'SELECT ("user", row)',
    "memory_vectors": 'SELECT ("user", row, embedder)',
    # Numbers that tell whether anything changed, and no words.
    "sessions": 'SELECT ("user", session)',
    "events": 'SELECT ("user", event)',
    "predictor_comparisons": 'SELECT ("user", comparison)',
    "predictor_training_log": 'SELECT ("user", run)',
    "predictor_state": "SELECT",
    "rule_events": 'SELECT ("user", event)',
    "rules": 'SELECT ("user", id)',
    "feedback_events": 'SELECT ("user", event)',
}
_ALL = "SELECT, INSERT, UPDATE, DELETE"
# What is nobody's: the app only reads it.
_COMMON = ("meta", "embedders", "schema_version")
# A setting that was set and went with its transaction is empty afterwards, not missing.
_PRESENT = f"nullif(current_setting('{SETTING}', true), '')"


def make_role(name: str) -> str:
    """Creates a role without any rights unless it is there; another process may be as quick."""
    return f"""DO $$ BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN
            CREATE ROLE {name} NOLOGIN NOSUPERUSER NOBYPASSRLS;
        END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$"""


def join_role(name: str) -> str:
    """Lets whoever is logged in take a role; one who may not grant it must have it already.

    Its rights come only with taking it, where PostgreSQL can tell the two apart (from 16 on).
    """
    return f"""DO $$ BEGIN
        EXECUTE format('GRANT {name} TO %I', session_user)
            || CASE WHEN current_setting('server_version_num')::integer >= 160000
                THEN ' WITH INHERIT FALSE' ELSE '' END;
    EXCEPTION WHEN insufficient_privilege THEN NULL;
    END $$"""


def walls(schema: str, tables: Iterable[str]) -> Iterator[str]:
    """The statements that put every tenant's table behind its wall."""
    for role in (APP, STEWARD):
        yield make_role(role)
        yield join_role(role)
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
        yield f"GRANT SELECT ON {', '.join(_COMMON)} TO {role}"
        yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    yield f"GRANT INSERT, UPDATE, DELETE ON meta, embedders TO {STEWARD}"
    yield f"GRANT EXECUTE ON FUNCTION index_vectors TO {STEWARD}"
    for table in tables:
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
        yield f'CREATE POLICY tenant ON {table} USING ("user" = {_PRESENT})'
        yield f"GRANT {_ALL} ON {table} TO {APP}"
        if table in _STEWARDS:
            yield f"CREATE POLICY steward ON {table} TO {STEWARD} USING (true)"
            yield f"GRANT {_STEWARDS[table]} ON {table} TO {STEWARD}"
