"""Databases to read rows from: SQLite, and a PostgreSQL by a user who is not root, as whom it would not start."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import sqlalchemy as sql

from tests.torture.world import free_port

_DEBIAN = Path("/usr/lib/postgresql")


def programs():
    """The folder of initdb and pg_ctl; None where there is no PostgreSQL."""
    found = [shutil.which("initdb"), *map(str, sorted(_DEBIAN.glob("*/bin/initdb"), reverse=True))]
    return next((Path(one).resolve().parent for one in found if one), None)


@contextmanager
def server():
    """The connection string of a fresh database, as SQLAlchemy spells it."""
    where, port = programs(), free_port()
    owner = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="tacit-pg-") as name:  # its path must be short: a socket lies in it
        folder = Path(name)
        if os.getuid() == 0:
            shutil.chown(folder, owner)

        def run(program, *arguments):
            subprocess.run([where / program, *arguments], user=owner if os.getuid() == 0 else None, cwd=folder,
                           check=True, stdout=subprocess.DEVNULL, timeout=60)  # fmt: skip

        run("initdb", "-D", folder / "data", "-A", "trust", "-U", "tacit", "--no-sync")
        settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        run("pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "-o", settings, "start")
        try:
            yield f"postgresql+psycopg://tacit@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")


@contextmanager
def databases(folder):
    """Connection strings of those that are here, by name."""
    found = {"sqlite": f"sqlite:///{folder / 'rows.db'}"}
    if programs() is None:
        yield found
        return
    with server() as url:
        yield found | {"postgresql": url}


def fill(engine, table, name="weather"):
    """A table of a database with these rows."""
    kinds = {pl.String: sql.Text, pl.Float64: sql.Double, pl.Int64: sql.BigInteger, pl.Date: sql.Date}
    columns = [sql.Column(key, kinds[dtype.base_type()]) for key, dtype in table.schema.items()]
    made = sql.Table(name, sql.MetaData(), *columns)
    with engine.begin() as connection:
        made.drop(connection, checkfirst=True)
        made.create(connection)
        connection.execute(made.insert(), table.to_dicts())
