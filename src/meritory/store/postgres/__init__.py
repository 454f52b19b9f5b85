"""The store contract on PostgreSQL with pgvector: one database for many daemons and tenants."""
