"""`tacit ledger`, where there is nothing to show."""

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli.ledger import ledger
from tacit.errors import UsageError


@pytest.mark.parametrize("old", [False, True], ids=["nothing", "the ledger of an older version"])
def test_no_ledger_is_told(old, tmp_path):
    if old:
        (tmp_path / "ledger").mkdir()
        (tmp_path / "ledger" / "log").write_bytes(b"TACITLDG")
    app = typer.Typer()
    app.command()(ledger)
    done = CliRunner().invoke(app, ["--folder", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "has no ledger yet" in str(done.exception)
