"""What the operator of a shared database had better change, in words."""

from __future__ import annotations

from meritory.store.postgres.schema import SCHEMA
from meritory.store.postgres.tenancy import APP, STEWARD
from meritory.store.sql import Connection

LATE = (
    "a pooler stands in between: daemons look for each other's work every 15 s only;"
    " give them the server's own address"
)
# Together the two roles see all rows and all columns; one at a time they do not. An administrator
# stands above all walls anyway.
_LOGIN = f"""SELECT quote_ident(session_user),
        current_setting('server_version_num')::integer >= 160000,
        pg_has_role(session_user, '{APP}', 'USAGE')
            AND pg_has_role(session_user, '{STEWARD}', 'USAGE')
            AND NOT (rolsuper OR rolbypassrls),
        r.oid = (SELECT nspowner FROM pg_namespace WHERE nspname = '{SCHEMA}')
    FROM pg_roles r WHERE rolname = session_user"""  # noqa: S608 - names of ours


def about_login(connection: Connection) -> list[str]:
    """Whether the daemon's password opens the texts of all tenants, without Meritory."""
    login, can_tell_apart, is_open, is_owner = connection.execute(_LOGIN).fetchone()
    if not is_open:
        return []
    closing = f"ALTER ROLE {login} NOINHERIT"
    if can_tell_apart:
        closing = f"GRANT {APP}, {STEWARD} TO {login} WITH INHERIT FALSE"
    if not is_owner:
        # Without the roles' rights it has to be let in by itself, to look which version there is.
        closing = (
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {login};"
            f" GRANT SELECT ON {SCHEMA}.schema_version TO {login}; {closing}"
        )
    return [f"the password of {login} opens all tenants' rows in `psql`; `{closing}` ends that"]
