#!/bin/sh
# Once, in an empty server: the extension as superuser, and the role that the store runs as, which is none.
set -eu
psql -v ON_ERROR_STOP=1 -U postgres -v password="$TWOFOLD_PASSWORD" <<'SQL'
CREATE ROLE twofold LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE twofold OWNER twofold;
\connect twofold
CREATE EXTENSION IF NOT EXISTS vector;
SQL
