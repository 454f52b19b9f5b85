"""A lock may be held for long without blocking anything else."""

from __future__ import annotations

import psycopg

from meritory.domain.place import Place
from meritory.store.postgres.store import PostgresStore

_SEEN = """SELECT backend_xmin FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'"""


def test_a_held_lock_keeps_no_snapshot_of_the_rows(database: Place) -> None:
    """It would keep dead rows from being cleaned up, and an index from ever being finished."""
    store = PostgresStore(database.url)
    with store.try_lock("something") as is_ours, psycopg.connect(database.url) as other:
        assert is_ours
        assert other.execute(_SEEN).fetchall() == [(None,)]
    store.close()


def test_a_lock_outlasts_the_idle_timeout_of_the_server(database: Place) -> None:
    with psycopg.connect(database.url, autocommit=True) as administrator:
        (name,) = administrator.execute("SELECT quote_ident(current_database())").fetchone() or ""
        setting = f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout"
        administrator.execute(f"{setting} = '20ms'".encode())
        try:
            one, other = PostgresStore(database.url), PostgresStore(database.url)
        finally:
            administrator.execute(f"{setting} = DEFAULT".encode())
        with one.try_lock("something") as is_ours:
            administrator.execute("SELECT pg_sleep(0.1)")
            with other.try_lock("something") as is_theirs:
                assert (is_ours, is_theirs) == (True, False)
        one.close()
        other.close()
