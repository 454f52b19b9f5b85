"""The schema of a PostgreSQL store: tables, functions, roles, and the steps that make them.

Row-level security keeps tenants apart. A transaction takes the role `meritory_app`, which sees the
rows of the tenant in the setting `meritory.tenant`, and none while that is empty. The role
`meritory_steward` covers all tenants: it sees jobs, and owners and numbers of memories, but
no text. PostgreSQL exempts superusers and owners from such policies, so that security is forced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from meritory.domain.errors import SchemaTooNew, StorageError
from meritory.store.sql.tables import BY_NAME, TABLES, TENANT, Migration, SqlTable

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection


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
# All tenants share these; the role of the app only reads them.
_COMMON = ("meta", "embedders", "schema_version")
# After its transaction a local setting is empty, not missing.
_PRESENT = f"nullif(current_setting('{SETTING}', true), '')"


# Without any rights, unless it exists; another process may create it at the same time.
_MAKE_ROLE = """DO $$ BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN
            CREATE ROLE {name} NOLOGIN NOSUPERUSER NOBYPASSRLS;
        END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$"""
# A login that may not grant the role must have it already. From PostgreSQL 16 on the login has its
# rights only while it takes the role.
_JOIN_ROLE = """DO $$ BEGIN
        EXECUTE format('GRANT {name} TO %I', session_user)
            || CASE WHEN current_setting('server_version_num')::integer >= 160000
                THEN ' WITH INHERIT FALSE' ELSE '' END;
    EXCEPTION WHEN insufficient_privilege THEN NULL;
    END $$"""


def tenancy(schema: str, tables: Iterable[str]) -> Iterator[str]:
    """Yield the statements that set up roles and row-level security."""
    for role in (APP, STEWARD):
        yield _MAKE_ROLE.format(name=role)
        yield _JOIN_ROLE.format(name=role)
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


SCHEMA = "meritory"
# By logical type. Text compares by its bytes, as in SQLite, in any locale.
TYPES = {
    "INTEGER": "bigint",
    "REAL": "double precision",
    "TEXT": "text",
    "BLOB": "bytea",
    "VECTOR": "vector",
}
_COLUMN_TYPES = {**TYPES, "TEXT": 'text COLLATE "C"'}
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
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT 4 + vector_dims($1) $$""",
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
            *tenancy(SCHEMA, TENANT_TABLES),
        ),
    ),
)


SERVER_VERSION_MIN = 150_000
VECTOR_VERSION_MIN = (0, 8)


def schema_version(raw: RawConnection[Any]) -> int:
    """Return the version recorded in the database, 0 for none."""
    found = raw.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.schema_version",)).fetchone()
    if found is None or found[0] is None:
        return 0
    (version,) = raw.execute(
        f"SELECT coalesce(max(version), 0) FROM {SCHEMA}.schema_version"  # noqa: S608 - ours
    ).fetchone() or (0,)
    return int(version)


def migrate(raw: RawConnection[Any]) -> None:
    """Bring the schema up to date; each step and its record are one transaction."""
    if raw.info.server_version < SERVER_VERSION_MIN:
        raise StorageError(
            f"PostgreSQL {raw.info.server_version // 10_000} is too old",
            hint=f"Meritory needs {SERVER_VERSION_MIN // 10_000} or newer",
        )
    newest = MIGRATIONS[-1].version
    if schema_version(raw) > newest:
        raise SchemaTooNew(
            f"the database was written by a newer Meritory (schema {schema_version(raw)}, "
            f"this one knows {newest})",
            hint="upgrade Meritory; nothing was changed",
        )
    for migration in MIGRATIONS:
        if schema_version(raw) >= migration.version:
            continue
        with raw.transaction():
            # A second process waits here and must see that the work is done.
            raw.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            raw.execute("SELECT pg_advisory_xact_lock(hashtext('meritory migration'))")
            if schema_version(raw) >= migration.version:
                continue
            raw.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
            _require_vector(raw)
            raw.execute(f"SET LOCAL search_path = {search_path(raw)}".encode())
            raw.execute(
                f"CREATE TABLE IF NOT EXISTS {SCHEMA}.schema_version"
                " (version integer PRIMARY KEY)".encode()
            )
            for statement in migration.statements:
                raw.execute(statement.encode())
            raw.execute(
                f"INSERT INTO {SCHEMA}.schema_version VALUES (%s)",  # noqa: S608 - ours
                (migration.version,),
            )


def search_path(raw: RawConnection[Any]) -> str:
    """Return our schema and the one of pgvector."""
    found = raw.execute(
        "SELECT quote_ident(nspname) FROM pg_extension e"
        " JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'vector'"
    ).fetchone()
    return f"{SCHEMA}, {found[0] if found else 'public'}"


def _require_vector(raw: RawConnection[Any]) -> None:
    """Create the extension in this database; reject one that is too old."""
    import psycopg

    asked = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    found = raw.execute(asked).fetchone()
    if found is None:
        available = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
        if raw.execute(available).fetchone() is None:
            raise StorageError(
                "the database server has no pgvector",
                hint="install its package (postgresql-NN-pgvector), or use a server that has it",
            )
        try:
            raw.execute("CREATE EXTENSION vector")
        except psycopg.errors.InsufficientPrivilege:
            raise StorageError(
                "the login may not switch pgvector on in this database",
                hint="let an administrator run `CREATE EXTENSION vector` there once",
            ) from None
        found = raw.execute(asked).fetchone()
    version = str(found[0]) if found else "0"
    if tuple(int(part) for part in version.split(".")[:2]) < VECTOR_VERSION_MIN:
        raise StorageError(
            f"pgvector {version} is too old",
            hint="upgrade it to 0.8 or newer, then `ALTER EXTENSION vector UPDATE`",
        )
