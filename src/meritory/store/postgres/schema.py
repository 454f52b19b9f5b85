"""The schema of a PostgreSQL store: the shared tables, and functions that shared SQL uses."""

from __future__ import annotations

import re

from meritory.store.postgres.tenancy import SETTING, walls
from meritory.store.sql.tables import BY_NAME, TABLES, TENANT, Migration, SqlTable

SCHEMA = "meritory"
# By logical type. Text compares by its bytes, as in SQLite, in any locale.
TYPES = {"INTEGER": "bigint", "REAL": "double precision", "TEXT": "text", "BLOB": "bytea"}
_COLUMN_TYPES = {**TYPES, "TEXT": 'text COLLATE "C"', "VECTOR": "vector"}
# Rows that change often get room for their next version on the same page.
_FILL_FACTORS = {"tenants": 50, "memory_stats": 70}

# The full-text index: the memories that have a stem, how often and where. A tsvector would be
# smaller, but an index behind row-level security cannot use its operator (it is not leakproof), and
# BM25 needs counts that it does not have.
_TERMS = f"""CREATE TABLE memory_terms (
        "user" text COLLATE "C" NOT NULL DEFAULT current_setting('{SETTING}'),
        term text COLLATE "C" NOT NULL,
        row bigint NOT NULL,
        token_count integer NOT NULL,
        weight real NOT NULL,
        places bytea NOT NULL,
        PRIMARY KEY ("user", term, row)
    )"""
# Functions of SQLite that shared statements use, as PostgreSQL can have them. They live in our own
# schema; where PostgreSQL has a function of that name, the types tell them apart.
FUNCTIONS = (
    """CREATE FUNCTION json_each(document text, OUT key text, OUT value text)
        RETURNS SETOF record LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT f.key, f.value FROM jsonb_each_text(CASE jsonb_typeof(document::jsonb)
            WHEN 'object' THEN document::jsonb ELSE '{}' END) f
        UNION ALL
        SELECT (n - 1)::text, v FROM jsonb_array_elements_text(CASE jsonb_typeof(document::jsonb)
            WHEN 'array' THEN document::jsonb ELSE '[]' END) WITH ORDINALITY a (v, n)
        $$""",
    """CREATE FUNCTION json_valid(document text) RETURNS boolean
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
        BEGIN
            PERFORM document::jsonb;
            RETURN true;
        EXCEPTION WHEN data_exception THEN
            RETURN false;
        END $$""",
    # Paths are of the form $.name, or $."name" where one is removed.
    """CREATE FUNCTION json_extract(document text, path text) RETURNS text
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
        $$ SELECT document::jsonb ->> substr(path, 3) $$""",
    """CREATE FUNCTION json_remove(document text, path text) RETURNS text
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
        $$ SELECT (document::jsonb - substr(path, 4, length(path) - 4))::text $$""",
    """CREATE FUNCTION julianday(at text) RETURNS double precision
        LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
        SELECT extract(epoch FROM at::timestamptz)::double precision / 86400.0 + 2440587.5 $$""",
    # Only ever asked for the Monday of a week.
    """CREATE FUNCTION date(at text, first text, second text) RETURNS text
        LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
        SELECT to_char(date_trunc('week', at::timestamptz AT TIME ZONE 'UTC'), 'YYYY-MM-DD') $$""",
    """CREATE FUNCTION instr(text, text) RETURNS integer
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT strpos($1, $2) $$""",
    """CREATE FUNCTION max(bigint, bigint) RETURNS bigint
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT greatest($1, $2) $$""",
    # In bytes, as SQLite holds vectors.
    """CREATE FUNCTION length(vector) RETURNS bigint
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT 4 * vector_dims($1) $$""",
    # An index of its own for every tenant that has grown large: one for all would have to pass by
    # the others' vectors, and finds little where they lie nearer. By its maker's rights, for an
    # index is the owner's affair; who owns the tables makes it without locking (`indexes`).
    """CREATE FUNCTION index_vectors(tenant text, number bigint, width bigint) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
        BEGIN
            EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON memory_vectors'
                ' USING hnsw ((vector::halfvec(%s)) halfvec_ip_ops) WITH (ef_construction = 128)'
                ' WHERE "user" = %L AND embedder = %s AND vector IS NOT NULL',
                'memory_vectors_' || number || '_' || md5(tenant), width, tenant, number);
        END $$""",
    "REVOKE EXECUTE ON FUNCTION index_vectors FROM PUBLIC",
)
_FIRST_ROWS = """INSERT INTO meta VALUES ('secret', encode(sha256(
    (gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex'))"""


def _led(names: tuple[str, ...], table: SqlTable) -> str:
    """Return the columns of a key with the tenant first."""
    rest = [name for name in names if name != TENANT]
    return ", ".join(rest if table.tenant is None else [f'"{TENANT}"', *rest])


def _create(table: SqlTable) -> list[str]:
    """Return the statements that create a table and its indexes."""
    lines, foreign_keys = [], []
    for column in table.columns:
        name = f'"{TENANT}"' if column.name == TENANT else column.name
        line = f"{name} {_COLUMN_TYPES[column.type]}"
        # A vector without direction is NULL.
        if not column.is_nullable and column.type != "VECTOR":
            line += " NOT NULL"
        if column.default is not None:
            line += f" DEFAULT {column.default}"
        if column.name == table.number and table.numbering != "counted":
            line += " GENERATED BY DEFAULT AS IDENTITY"
        lines.append(line)
        if column.references:
            referred = BY_NAME[column.references]
            foreign_keys.append(
                f"FOREIGN KEY ({_led((column.name,), referred)})"
                f" REFERENCES {referred.name} ({_led(referred.key, referred)})"
                f"{' ON DELETE CASCADE' if column.cascades else ''}"
            )
    has_own_column = table.tenant in (None, TENANT)
    if not has_own_column:
        lines.append(
            f"\"{TENANT}\" {_COLUMN_TYPES['TEXT']} NOT NULL DEFAULT current_setting('{SETTING}')"
        )
    lines.append(f"PRIMARY KEY ({_led(table.key, table)})")
    if table.unique:
        lines.append(f"UNIQUE ({_led(table.unique, table)})")
    body = ",\n    ".join(lines + foreign_keys)
    fill = _FILL_FACTORS.get(table.name)
    statements = [
        f"CREATE TABLE {table.name} (\n    {body}\n)"
        + (f" WITH (fillfactor = {fill})" if fill else "")
    ]
    for index in table.indexes:
        columns = index.columns if has_own_column else f"{TENANT}, {index.columns}"
        columns = re.sub(rf"\b{TENANT}\b", f'"{TENANT}"', columns)
        statements.append(
            f"CREATE {'UNIQUE ' if index.is_unique else ''}INDEX {index.name}"
            f" ON {table.name} ({columns}){f' WHERE {index.where}' if index.where else ''}"
        )
    return statements


TENANT_TABLES = (*(table.name for table in TABLES if table.tenant), "memory_terms")

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "first",
        (
            *FUNCTIONS,
            *(statement for table in TABLES for statement in _create(table)),
            _TERMS,
            _FIRST_ROWS,
            *walls(SCHEMA, TENANT_TABLES),
        ),
    ),
)
