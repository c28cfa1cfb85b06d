"""The public names: sorted, documented, all there, and cheap to list."""

import inspect
import subprocess
import sys

import pytest

import tacit


def test_names_are_sorted_and_complete():
    assert tacit.__all__ == sorted(tacit.__all__)
    assert set(tacit._HOME) | {"__version__"} == set(tacit.__all__)
    assert set(tacit.__all__) <= set(dir(tacit))


@pytest.mark.parametrize("name", [name for name in tacit.__all__ if name != "__version__"])
def test_every_name_is_there_and_documented(name):
    thing = getattr(tacit, name)
    assert len(inspect.getdoc(thing) or "") > 20


def test_protections_are_functions_and_modules():
    assert callable(tacit.marvell)
    assert inspect.ismodule(tacit.split.protect.gradient.marvell)
    assert tacit.split.protect.gradient.marvell.solve(1.0, 2.0, 8, 1.0, 0.5, power=1.0).power == pytest.approx(1.0)


def test_what_names_say_costs_no_torch_before_it_is_used():
    code = (
        "import sys, tacit; assert 'torch' not in sys.modules\n"
        "import tacit.labels.flips; assert tacit.labels.flips.flips(0.6).auc == tacit.flips(0.6).auc\n"
        "from tacit.errors import UsageError\n"
        "try: tacit.one_shot(features=[[1.0]], labels=[0], bits=0)\n"
        "except UsageError: sys.exit(0)\n"
        "sys.exit(1)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="marvel"):
        _ = tacit.marvel
    with pytest.raises(AttributeError, match="marvel"):
        _ = tacit.split.protect.gradient.marvel


def test_importing_the_package_does_not_import_torch():
    code = "import sys, tacit, tacit.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
