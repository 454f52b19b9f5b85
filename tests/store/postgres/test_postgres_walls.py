"""Tenants on PostgreSQL: whoever tries to look over the wall sees nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    about,
    found,
    indexed,
    insert,
    memory_id,
    record,
    unit,
    vector_search,
    words_search,
)
from meritory.domain.errors import NotFound, StorageError
from meritory.domain.memory import Listing, Scope
from meritory.store.contract.memories import NeighbourProbe
from meritory.store.contract.store import Transaction
from meritory.store.postgres.connection import PostgresEngine, TenantConnection
from meritory.store.postgres.schema import APP, STEWARD, TENANT_TABLES
from meritory.store.postgres.store import PostgresStore
from postgres_kit import Server, execute_raw

ANN, BOB = Scope("ann"), Scope("bob")
SECRET = "xylophone"


@pytest.fixture(scope="module")
def address(postgres: Server) -> str:
    """A database in which Ann has a secret and Bob something harmless, under the same ids."""
    address = postgres.fresh()
    store = PostgresStore(address)
    store.register_embedder(EMBEDDER)
    vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
    insert(
        store,
        indexed(
            record(1, f"Ann's {SECRET}", user="ann"),
            vectors=vectors,
            attributes=(about(SECRET),),
        ),
    )
    insert(store, indexed(record(2, "Bob's kettle", user="bob"), vectors=vectors))
    store.write("ann", lambda t: t.count("ann", "n", 5))
    store.close()
    return address


@pytest.fixture
def store(address: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(address)
    yield opened
    opened.close()


@pytest.fixture
def engine(address: str) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(address)
    yield opened
    opened.close()


def test_by_id(store: PostgresStore) -> None:
    with pytest.raises(NotFound):
        store.get("bob", memory_id(1))
    with pytest.raises(NotFound):
        store.write("bob", lambda t: t.get("bob", memory_id(1)))
    assert store.memories("bob", [memory_id(1)]) == {}
    assert store.history("bob", memory_id(1)) == []
    assert store.vectors("bob", EMBEDDER.name, [memory_id(1)]) == {}


def test_by_search(store: PostgresStore) -> None:
    assert found(store, words_search(BOB, SECRET)) == []
    assert found(store, vector_search(BOB, 1, 0, 0, 0)) == [memory_id(2)]
    assert [m.user for m in store.listing(Listing(BOB, limit=99))] == ["bob"]
    assert store.entities(BOB, 9) == []
    probe = NeighbourProbe(BOB, EMBEDDER.name, unit(1, 0, 0, 0)[None, :], 9, 0.1)
    (near,) = store.write(probe.scope.user, lambda t: t.nearest(probe))
    assert [one.memory.user for one in near] == ["bob"]


def test_by_row_numbers_and_scopes_of_others(store: PostgresStore) -> None:
    """Rows are numbered for each tenant: the same number is another memory."""
    everything = np.arange(-1, 1_000)
    assert {m.user for m in store.fetch(BOB, everything, NOW).values()} == {"bob"}
    assert {m.user for m in store.fetch(ANN, everything, NOW).values()} == {"ann"}


HANDCRAFTED = (
    "SELECT * FROM memories WHERE user = ? OR true",
    "SELECT * FROM memories m WHERE m.user = ? OR m.user = 'ann'",
    "SELECT * FROM memories WHERE 'ann' = user OR user = ?",
    "SELECT a.* FROM memories b JOIN memories a ON true WHERE b.user = ? AND a.user <> b.user",
    "SELECT (SELECT string_agg(content, '') FROM memories WHERE user = 'ann') FROM memories"
    " WHERE user = ? AND false",
    "SELECT * FROM memories WHERE user = ? UNION ALL SELECT * FROM memories",
    "WITH every AS (SELECT * FROM memories) SELECT * FROM every WHERE user = ? OR user = 'ann'",
    "SELECT * FROM memory_terms WHERE user = ? OR term LIKE 'xyl%'",
    "SELECT * FROM counters WHERE user = ? OR name = 'n'",
    "SELECT * FROM entities WHERE user = ? OR true",
    "UPDATE memories SET content = 'mine' WHERE user = ? OR user = 'ann' RETURNING user, content",
    "DELETE FROM memories WHERE (user = ? AND false) OR user = 'ann' RETURNING user",
)


@pytest.mark.parametrize("statement", HANDCRAFTED)
def test_by_handcrafted_statements(engine: PostgresEngine, statement: str) -> None:
    class Undo(Exception): ...

    seen: list[str] = []

    def work(connection: object) -> None:
        seen.append(repr(connection.execute(statement, ("bob",)).fetchall()))  # type: ignore[attr-defined]
        raise Undo

    with pytest.raises(Undo):
        engine.write("bob", work)
    assert SECRET not in seen[0] and "ann" not in seen[0].lower()


@pytest.mark.parametrize("table", sorted(TENANT_TABLES))
def test_no_table_is_without_its_wall(address: str, engine: PostgresEngine, table: str) -> None:
    with psycopg.connect(address) as owner:
        flags = owner.execute(
            "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = to_regclass(%s)",
            (f"meritory.{table}",),
        ).fetchone()
        assert flags == (True, True)
        stored = owner.execute(f"SELECT count(*) FROM meritory.{table} WHERE \"user\" = 'ann'")
        (of_ann,) = stored.fetchone() or (0,)
    with engine.read("bob") as connection:
        seen = connection.execute(f"SELECT * FROM {table}")
        users = {dict(zip((c.name for c in seen.description), row, strict=True))["user"]  # type: ignore[attr-defined]
                 for row in seen.fetchall()}  # fmt: skip
    assert users <= {"bob"}
    if table in ("memories", "memory_stats", "memory_vectors", "memory_terms", "tenants"):
        assert of_ann >= 1


def test_a_transaction_without_a_name_is_refused(engine: PostgresEngine) -> None:
    with pytest.raises(StorageError, match="no tenant"), engine.read(""):
        pass
    with pytest.raises(StorageError, match="no tenant"):
        engine.write("", lambda c: c.execute("DELETE FROM memories"))


def test_a_statement_about_another_tenant_finds_nothing(engine: PostgresEngine) -> None:
    asked = "SELECT count(*) FROM memories WHERE user = ?"
    with engine.read("bob") as connection:
        assert connection.execute(asked, ("ann",)).fetchone() == (0,)
        assert connection.execute(asked, ("bob",)).fetchone() == (1,)
    with pytest.raises(StorageError, match="may not"):
        engine.write("bob", lambda c: c.execute("INSERT INTO counters VALUES ('ann', 'm', 1)"))


def test_without_the_adapter_the_role_alone_sees_nothing(address: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("SET search_path = meritory, public")
        connection.execute("SET ROLE meritory_app")
        assert connection.execute("SELECT count(*) FROM memories").fetchone() == (0,)
        connection.execute("SELECT set_config('meritory.tenant', 'bob', true)")
        assert connection.execute('SELECT "user" FROM memories').fetchall() == [("bob",)]


def test_nobody_writes_rows_for_another(address: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("SET search_path = meritory, public")
        connection.execute("SET ROLE meritory_app")
        connection.execute("SELECT set_config('meritory.tenant', 'bob', true)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO counters VALUES ('ann', 'n', 1)")


def test_the_tenant_of_one_transaction_is_forgotten_in_the_next(engine: PostgresEngine) -> None:
    owner = "SELECT DISTINCT user FROM memories"
    for _ in range(40):  # every connection of the pool
        for tenant in ("ann", "bob"):
            with engine.read(tenant) as connection:
                assert connection.execute(owner).fetchall() == [(tenant,)]


def test_the_steward_sees_no_words(engine: PostgresEngine) -> None:
    with engine.read_across() as connection:
        assert connection.execute("SELECT count(*) FROM memories").fetchone() == (2,)
    for statement in (
        "SELECT content FROM memories",
        "SELECT * FROM memories",
        "SELECT term FROM memory_terms",
        "SELECT context FROM sessions",
        "SELECT vector FROM memory_vectors",
    ):
        with pytest.raises(StorageError, match="may not"), engine.read_across() as connection:
            connection.execute(statement)
    with pytest.raises(StorageError, match="may not"):
        engine.write_across(lambda connection: connection.execute("DELETE FROM memories"))


def test_a_migration_enters_one_tenant_after_the_other(engine: PostgresEngine) -> None:
    """Within one transaction, whether it reads or writes."""
    everything = "SELECT count(*), min(user) FROM memories"

    def work(connection: TenantConnection) -> list[tuple[int, str]]:
        seen = []
        for tenant in ("bob", "ann", "bob"):
            connection.enter(tenant)
            with connection.across():
                seen.append(connection.execute(everything).fetchone())
            seen.append(connection.execute(everything).fetchone())
        return seen

    expected = [(2, "ann"), (1, "bob"), (2, "ann"), (1, "ann"), (2, "ann"), (1, "bob")]
    assert engine.write("bob", work) == expected
    with engine.read_across() as connection:
        assert work(connection) == expected


ALL = ("DELETE", "INSERT", "SELECT", "UPDATE")
COMMON = ("embedders", "meta", "schema_version")


def test_both_roles_have_these_rights_and_no_others(address: str) -> None:
    tenants, looked_at = sorted(TENANT_TABLES), dict.fromkeys(COMMON, ("SELECT",))
    assert rights(address, APP) == {**looked_at, **dict.fromkeys(tenants, ALL)}
    assert rights(address, STEWARD) == {
        **looked_at,
        **dict.fromkeys(("embedders", "meta"), ALL),
        **dict.fromkeys(("predictor_state", "tenants"), ("SELECT",)),
        "jobs": ("SELECT", "UPDATE"),
    }
    # What is all of a table needs no naming of columns.
    assert columns_seen(address, STEWARD) == {
        "memories": ["id", "row", "user"],
        "memory_stats": ["row", "user"],
        "memory_vectors": ["embedder", "row", "user"],
        "sessions": ["session", "user"],
        "events": ["event", "user"],
        "predictor_comparisons": ["comparison", "user"],
        "predictor_training_log": ["run", "user"],
        "rule_events": ["event", "user"],
        "rules": ["id", "user"],
        "feedback_events": ["event", "user"],
    }


def rights(address: str, role: str) -> dict[str, tuple[str, ...]]:
    found = execute_raw(
        address,
        f"""SELECT table_name, array_agg(privilege_type::text ORDER BY privilege_type)
            FROM information_schema.table_privileges
            WHERE table_schema = 'meritory' AND grantee IN ('{role}', 'PUBLIC') GROUP BY 1""",
    )
    return {table: tuple(granted) for table, granted in found}


def columns_seen(address: str, role: str) -> dict[str, list[str]]:
    """The columns by name that a role may see of tables that it may not see whole."""
    found = execute_raw(
        address,
        f"""SELECT table_name, array_agg(column_name::text ORDER BY column_name)
            FROM information_schema.column_privileges
            WHERE table_schema = 'meritory' AND grantee IN ('{role}', 'PUBLIC') GROUP BY 1""",
    )
    whole = rights(address, role)
    return {table: columns for table, columns in found if table not in whole}


def test_a_transaction_sees_its_tenant_alone(store: PostgresStore) -> None:
    def work(transaction: Transaction) -> str:
        with pytest.raises(NotFound):
            transaction.get("ann", memory_id(1))
        return transaction.get("bob", memory_id(2)).content

    assert store.write("bob", work) == "Bob's kettle"
