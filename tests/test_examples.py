"""Every example runs as a user would run it, at a small size, and says what it promises to say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = {
    "custom_models": ("--rows", "2000", "--epochs", "1"),
    "images": ("--rows", "400", "--epochs", "1"),
    "label_party_with_features": ("--rows", "2500", "--epochs", "1"),
    "one_shot": ("--rows", "1200"),
    "one_shot_module": ("--rows", "1200"),
    "three_parties": ("--rows", "1500", "--epochs", "1"),
}


def said(name):
    """What the example prints; a warning in it is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", *SMALL[name]],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(pattern, text):
    """The numbers that a pattern finds, which it must."""
    found = re.findall(pattern, text)
    assert found, text
    return [float(one) for one in found]


def test_every_example_is_run_and_listed():
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == set(SMALL)
    listed = set(re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text()))
    assert listed == scripts


@pytest.mark.parametrize("name", ["custom_models", "label_party_with_features", "three_parties"])
def test_the_example_trains_and_says_what_leaked(name):
    text = said(name)
    assert re.search(r"^(trained|three processes trained) .*\b[\d,]{3,}\b", text), text
    assert all(0.3 < auc < 1 for auc in figures(r"test AUC of .*: ([\d.]+)\n", text))
    (leak,) = figures(r"worst of all attacks on the labels: .*, leak AUC ([\d.]+)", text)
    assert 0.5 <= leak < 0.8  # bare gradients of these give 0.9 and more


@pytest.mark.parametrize(("name", "bound"), [("one_shot", "0.600"), ("one_shot_module", "0.700")])
def test_one_exchange_says_what_it_is_worth_and_what_each_side_told(name, bound):
    text = said(name)
    (auc,) = figures(r"test auc ([\d.]+)", text)
    (alone,) = figures(r"without the features: ([\d.]+)", text)
    assert 0.4 < alone < 1
    assert 0.4 < auc < 1  # so few flipped labels teach little
    assert f"a leak AUC of at most {bound}" in " ".join(text.split())
    assert re.search(r"Decoders read \d+% of the numbers' variance", text)


def test_noise_on_the_embeddings_hides_pictures():
    text = said("images")
    bare, noisy = figures(r"reads (-?\d+)% of the pixels' variance", text)
    assert noisy < bare - 20
    assert all(0.5 <= leak < 0.8 for leak in figures(r"worst attack on the labels ([\d.]+)", text))
