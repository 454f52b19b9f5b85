"""A turn may take long, and whoever has it is in nobody's way meanwhile."""

from __future__ import annotations

import psycopg

from meritory.domain.place import Place
from meritory.store.postgres.store import PostgresStore

_SEEN = """SELECT backend_xmin FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'"""


def test_who_has_the_turn_holds_no_view_of_the_rows(database: Place) -> None:
    """It would keep dead rows from being cleaned up, and an index from ever being finished."""
    store = PostgresStore(database.url)
    with store.turn("something") as is_ours, psycopg.connect(database.url) as other:
        assert is_ours
        assert other.execute(_SEEN).fetchall() == [(None,)]
    store.close()


def test_a_turn_outlasts_what_the_server_allows_those_who_are_silent(database: Place) -> None:
    with psycopg.connect(database.url, autocommit=True) as administrator:
        (name,) = administrator.execute("SELECT quote_ident(current_database())").fetchone() or ""
        setting = f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout"
        administrator.execute(f"{setting} = '20ms'".encode())
        try:
            one, other = PostgresStore(database.url), PostgresStore(database.url)
        finally:
            administrator.execute(f"{setting} = DEFAULT".encode())
        with one.turn("something") as is_ours:
            administrator.execute("SELECT pg_sleep(0.1)")
            with other.turn("something") as is_theirs:
                assert (is_ours, is_theirs) == (True, False)
        one.close()
        other.close()
