"""Statements written for SQLite, said in PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meritory.store.postgres.dialect import translate
from meritory.store.postgres.schema import MIGRATIONS, TENANT_TABLES

STORE = Path(__file__).resolve().parents[3] / "src" / "meritory" / "store"


@pytest.mark.parametrize(
    ("statement", "becomes"),
    [
        ("SELECT user FROM t", 'SELECT "user" FROM t'),
        ("SELECT m.user, user_name FROM t", 'SELECT m."user", user_name FROM t'),
        ("WHERE user = ? AND users = ?", 'WHERE "user" = $1 AND users = $2'),
        ("(user, user, superuser)", '("user", "user", superuser)'),
        ("SELECT 'user = ? :user' || ?", "SELECT 'user = ? :user' || $1"),
        ("SELECT 'it''s user' || user", "SELECT 'it''s user' || \"user\""),
        ('SELECT "user" FROM t', 'SELECT "user" FROM t'),
        ("a = :a AND b = :b AND c = :a", "a = $1 AND b = $2 AND c = $1"),
        ("a = ?1 AND b = ?1", "a = $1 AND b = $1"),
        ("a = :a::text", "a = $1::text"),
        ("a IS ? AND b IS NULL AND c IS ?", "a IS NOT DISTINCT FROM $1 AND b IS NULL AND c IS NOT"
         " DISTINCT FROM $2"),
        ("? IS NULL OR a = ?", "$1::text IS NULL OR a = $2"),
        ("a IN (SELECT value FROM json_each(?))", "a = ANY($1)"),
        ("a NOT IN (SELECT value FROM json_each(:a))", "a <> ALL($1)"),
        ("a IN (SELECT value FROM b)", "a IN (SELECT value FROM b)"),
        ("coalesce(a, x'')", "coalesce(a, '\\x'::bytea)"),
        ("a CROSS JOIN b c ON c.x = a.x", "a JOIN b c ON c.x = a.x"),
        ("a CROSS JOIN b", "a CROSS JOIN b"),
        ("+m.user = :user", 'm."user" = $1'),
        ("INSERT INTO uses VALUES (?) ON CONFLICT (session, memory_id) DO NOTHING",
         'INSERT INTO uses VALUES ($1) ON CONFLICT ("user", session, memory_id) DO NOTHING'),
        ("INSERT INTO embedders VALUES (?) ON CONFLICT (name) DO NOTHING",
         "INSERT INTO embedders VALUES ($1) ON CONFLICT (name) DO NOTHING"),
        ("INSERT INTO counters VALUES (?) ON CONFLICT (user, name) DO NOTHING",
         'INSERT INTO counters VALUES ($1) ON CONFLICT ("user", name) DO NOTHING'),
    ],
)  # fmt: skip
def test_what_differs_is_said_otherwise(statement: str, becomes: str) -> None:
    assert translate(statement).text == becomes


def test_values_come_in_order_or_by_name_but_not_both() -> None:
    with pytest.raises(ValueError, match="both"):
        translate("SELECT ? FROM memories WHERE user = :user")


def test_no_statement_of_the_store_is_left_with_a_bare_user() -> None:
    """Unquoted it would be the name of whoever is logged in, silently."""
    bare = re.compile(r'(?<![\w":.])user(?![\w"])')
    literals = re.compile(r"'(?:[^']|'')*'")
    checked = 0
    for path in STORE.rglob("*.py"):
        for found in re.findall(
            r'"""((?:SELECT|INSERT|UPDATE|DELETE|WITH)[^"]*)"""', path.read_text("utf-8")
        ):
            checked += 1
            assert not bare.search(literals.sub("''", translate(found).text)), (path.name, found)
    assert checked > 50


def test_the_tenant_leads_every_key_and_index() -> None:
    for migration in MIGRATIONS:
        for statement in migration.statements:
            made = re.match(r"CREATE TABLE (\w+) ", statement)
            keys = re.findall(r"(?:PRIMARY KEY|UNIQUE) \(([^)]*)", statement)
            if made and made[1] in TENANT_TABLES:
                assert keys and all(key.startswith('"user"') for key in keys), statement
            index = re.match(r"CREATE (?:UNIQUE )?INDEX (\w+)\s+ON \w+ \(([^,)]*)", statement)
            # A daemon looks for due jobs of all tenants.
            if index and index[1] != "jobs_by_due":
                assert index[2] == '"user"', statement
