"""Functions of SQLite that statements of ours use, as PostgreSQL can have them.

They live in our own schema; where PostgreSQL has a function of that name, the types tell them
apart.
"""

from __future__ import annotations

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
