"""A new protection or attack is one new file: added to a copy of the package, it is found by all that use such things.

The files are those of the two how-tos, so what these promise is what is tested. The copy is made of links, but for the
two folders that get a file more; one process of its own looks into every corner of it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tacit

ROOT = Path(__file__).parent.parent
ADDED = {"steady": ("split", "protect", "gradient"), "peak": ("audit", "attacks")}

LOOK = """
import json, sys
import numpy as np, torch
from typer.testing import CliRunner
sys.path.insert(0, sys.argv[1])
import docs_settings, make_docs
import tacit
from tacit.audit import attacks, foresight, live, standard
from tacit.cli import app
from tacit.cli._options import attacks as attacks_to_type, protections as protections_to_type
from tacit.config import Contract, contract_template, meets
from tacit.contracts import View
from tacit.errors import UsageError
from tacit.lab.stack.measuring import EVERY_BATCH
from tacit.lab.sweeping.settings import grid
from tacit.lab.sweeping.judging import wanted
from tacit.split.protect import gradient
from tacit.split.protect.gradient import protection

def contract(strength):
    text = contract_template().replace('"matched", leak_auc = 0.6, visits = "epochs"', f'"steady", {strength}')
    return Contract.read(text).minimum.gradient

def refused(work):
    try:
        work()
    except UsageError as error:
        return str(error)

draw = torch.Generator().manual_seed(0)
labels = (torch.rand(256, generator=draw) < 0.3).long()
clean = (0.3 + labels.reshape(4, 64, 1)) * torch.randn(4, 64, 8, generator=draw)
embedding = torch.randn(4, 64, 8, generator=draw)
view = View.of(clean, embedding=embedding)
sent = foresight.Sent(view, clean, embedding)
made = protection("steady", times=2.0)
told = CliRunner()
audited = ["peak" in standard.ATTACKS, ("peak", "mean") in standard.JOINED + standard.ACCUMULATED]
standard.ATTACKS = tuple(each for each in standard.ATTACKS if each in ("norm", "peak"))  # the others take their time
np.savez("sent.npz", gradients=clean.flatten(0, 1).numpy(), labels=labels.numpy())
told.invoke(app, "audit --messages sent.npz --out audit --batch-size 64".split(), catch_exceptions=False)
print(json.dumps({
    "package": tacit.__file__,
    "options": contract("times = 2").options(3),
    "spelled": str(contract("times = 2")),
    "wrong": [refused(lambda: contract(wrong)) for wrong in ("times = -1.0", "time = 1.0", "scale = 4.0")],
    "weaker": refused(lambda: meets([contract("times = 2")], [("steady", contract("times = 1").options())])),
    "typed": ["steady" in protections_to_type(), "peak" in attacks_to_type()],
    "swept": [each.spelled for each in grid(["steady"], 3)],
    "sent": list(made(clean[0], labels[:64], draw).value.shape),
    "every batch": "peak" in EVERY_BATCH,
    "columns": wanted({"attacks": [], "layers": [], "epochs": 2}),
    "steers": [figure.attack for figure in foresight.on_batches(sent, labels, seed=0)],
    "steers over visits": ("peak", "mean") in standard.STEERING,
    "looks": sorted(live.look_at_gradient(clean[0], clean[0], labels[:64], embedding[0], seed=0)),
    "audited": audited,
    "report": json.load(open("audit/report.json"))["leaks"],
    "protections page": make_docs.plugins("", "", "tacit.split.protect.gradient", gradient.names()),
    "attacks page": make_docs.plugins("", "", "tacit.audit.attacks", attacks.names()),
    "settings page": docs_settings.settings(),
}))
"""


def block(page: str, name: str) -> str:
    """The file of a how-to, as it stands there."""
    found = re.search(rf"^```python {name}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page} has no file {name}"
    return found[1]


def linked(source: Path, copy: Path, real: set[tuple[str, ...]], way: tuple[str, ...] = ()) -> None:
    """A folder of links to what is in another one; the folders that get new files, and those above them, are real."""
    copy.mkdir()
    for entry in source.iterdir():
        inside = (*way, entry.name)
        if entry.name == "__pycache__":
            continue
        if any(folder[: len(inside)] == inside for folder in real):
            linked(entry, copy / entry.name, real, inside)
        else:
            (copy / entry.name).symlink_to(entry)


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Path:
    """The package with two more files."""
    home = tmp_path_factory.mktemp("grown")
    linked(Path(tacit.__file__).parent, home / "tacit", set(ADDED.values()))
    pages = {"steady": "howto-add-a-protection.md", "peak": "howto-add-an-attack.md"}
    for name, way in ADDED.items():
        (home / "tacit").joinpath(*way, f"{name}.py").write_text(block(pages[name], f"{name}.py"))
    return home


@pytest.fixture(scope="module")
def found(grown) -> dict:
    """What a process finds in there."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(ROOT / "scripts")], capture_output=True, text=True, timeout=300, check=False,
        cwd=grown, env={**os.environ, "PYTHONPATH": str(grown)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert Path(answer["package"]).is_relative_to(grown)
    return answer


def test_settings_and_contracts_name_it_check_its_options_and_compare_two_of_it(found):
    assert found["options"] == {"times": 2.0}
    assert found["spelled"] == "steady(times=2)"
    below, misspelt, other = found["wrong"]
    assert "gradient.times: -1.0 is not greater than 0" in below
    assert "gradient.time: steady has no such option: did you mean times?" in misspelt
    assert "gradient.scale: steady has no such option" in other
    assert "the contract's minimum is steady(times=2), and steady is weaker in times" in found["weaker"]


def test_the_command_line_completes_both(found):
    assert found["typed"] == [True, True]


def test_sweeps_try_both(found):
    assert found["swept"] == ["none", "steady(times=0.1)", "steady(times=1)", "steady(times=10)"]
    assert found["sent"] == [64, 8]
    assert found["every batch"]
    assert {"peak@cut", "accumulated(peak)@cut"} <= set(found["columns"])


def test_the_gate_of_a_run_under_a_limit_raises_the_one_and_is_steered_by_the_other(found):
    assert "peak" in found["steers"]
    assert found["steers over visits"]
    assert "peak" in found["looks"]


def test_audits_and_reports_have_it(found):
    assert found["audited"] == [True, True]
    (leak,) = [each for each in found["report"] if each["attack"] == "peak"]
    assert leak["about"] == "Scores a row by its largest entry, whatever its sign."
    assert leak["knows"] == "the gradients, nothing else."
    assert leak["costs"] == "one pass over the gradients."


def test_the_docs_are_made_with_both(found):
    assert "| `steady` | `steady(times=1.0)` | Noise as long as" in found["protections page"]
    assert "| `peak` | `peak()` | Scores a row by its largest entry" in found["attacks page"]
    assert "| `times` | `steady` | number above 0 | the length of a row's noise" in found["settings page"]
