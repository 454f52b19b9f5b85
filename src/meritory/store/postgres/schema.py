"""The PostgreSQL schema as an ordered list of migrations; a released one is never edited again.

The tables have the columns of the SQLite schema, and one more rule: a tenant, the column "user",
leads every key and every index, so that a distributed PostgreSQL can shard by it. The one index
that does not is `jobs_by_due`: the queue is asked for the first due job of anybody.
"""

from __future__ import annotations

import re

from meritory.store.postgres.functions import FUNCTIONS
from meritory.store.postgres.schema_feedback import FEEDBACK
from meritory.store.postgres.schema_memories import MEMORIES
from meritory.store.postgres.schema_sessions import SESSIONS
from meritory.store.postgres.schema_teams import TEAMS
from meritory.store.postgres.tenancy import walls
from meritory.store.schema import Migration

SCHEMA = "meritory"
# What every tenant counts: the row is locked by whoever writes for the tenant, which puts writes
# of one tenant one behind the other, as SQLite does for a file. `row`, `event` and `action` are
# the last numbers given: small for every tenant, so that arrays by number stay small too.
_TENANTS = """CREATE TABLE tenants (
        "user" TEXT NOT NULL,
        change BIGINT NOT NULL DEFAULT 0,
        purge BIGINT NOT NULL DEFAULT 0,
        learned BIGINT NOT NULL DEFAULT 0,
        row BIGINT NOT NULL DEFAULT 0,
        event BIGINT NOT NULL DEFAULT 0,
        action BIGINT NOT NULL DEFAULT 0,
        document_count BIGINT NOT NULL DEFAULT 0,
        token_count BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY ("user")
    ) WITH (fillfactor = 50)"""
# The full-text index: which memories have a stem, how often and where. A tsvector would be
# smaller, but its operator may not be used by an index behind row-level security (it is not
# leakproof), and BM25 needs counts that it does not give.
_TERMS = """CREATE TABLE memory_terms (
        "user" TEXT NOT NULL DEFAULT current_setting('meritory.tenant'),
        term TEXT NOT NULL,
        row BIGINT NOT NULL,
        token_count INTEGER NOT NULL,
        weight REAL NOT NULL,
        places BYTEA NOT NULL,
        PRIMARY KEY ("user", term, row)
    )"""
_PEPPER = """INSERT INTO meta VALUES ('secret', encode(sha256(
    (gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex'))"""

# Both kinds of tables by their names, for the translator: those that belong to tenants, and among
# them those whose first column is the tenant.
_TABLE = re.compile(r"CREATE TABLE (\w+) \(\s+(\S+)")


def _tables(statements: tuple[str, ...]) -> dict[str, bool]:
    """By name of each tenant's table whether the tenant is its first column."""
    found = (_TABLE.match(text) for text in statements if '"user"' in text)
    return {match[1]: match[2] == '"user"' for match in found if match}


_FOUNDATION = (_TENANTS, *MEMORIES, _TERMS, *SESSIONS, *FEEDBACK)
_TEAM_TABLES = _tables(TEAMS)
TENANT_TABLES = {**_tables(_FOUNDATION), **_TEAM_TABLES}


def _plain(statement: str) -> str:
    """The statement with texts that compare by their bytes, as SQLite's do, in any locale."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "foundation",
        (
            *FUNCTIONS,
            *(_plain(statement) for statement in _FOUNDATION),
            _PEPPER,
            *walls(SCHEMA, _tables(_FOUNDATION)),
        ),
    ),
    Migration(
        2,
        "teams",
        (*(_plain(statement) for statement in TEAMS), *walls(SCHEMA, _TEAM_TABLES)),
    ),
    # The digest of a whole session, as `meritory.text.digest` encodes it.
    Migration(3, "digests", ("ALTER TABLE sessions ADD COLUMN digest BYTEA",)),
)
