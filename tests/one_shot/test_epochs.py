"""How far a network is, epoch by epoch, on the disk: one that was killed goes on to the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tacit.company.train import train_one_shot
from tacit.errors import StorageError
from tacit.one_shot.learn.network import network

from .companies import Companies, table


class KilledError(Exception):
    """As good as a kill: nothing after it is done."""


@pytest.mark.parametrize("at", [1, 3, 8, 12])
def test_one_that_is_killed_goes_on_to_the_same_bytes(made_up, tmp_path, at):
    asked = (made_up.inputs, made_up.sent[:600], made_up.coin, 2)
    learner = network(epochs=4, members=2)
    whole = learner.fit(*asked, seed=1)
    told = []

    def killed(*words):
        told.append(words)
        if len(told) == at:
            raise KilledError

    with pytest.raises(KilledError):
        replace(learner, keep=tmp_path).fit(*asked, seed=1, progress=killed)
    begun = len(told)
    went_on = replace(learner, keep=tmp_path).fit(*asked, seed=1, progress=lambda *words: told.append(words))
    assert went_on.digest == whole.digest
    assert len(told) - begun <= 18 - at, "what was done is not done again"


def test_a_damaged_file_is_told_and_not_begun_anew(made_up, tmp_path):
    learner = replace(network(epochs=2, members=1), keep=tmp_path)
    learner.fit(made_up.inputs, made_up.sent[:600], made_up.coin, 2)
    file = tmp_path / "600 labels" / "network 0.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StorageError, match="network 0"):
        learner.fit(made_up.inputs, made_up.sent[:600], made_up.coin, 2)


def test_a_file_of_another_network_is_told(made_up, tmp_path):
    learner = replace(network(pretraining=False, epochs=1, members=1), keep=tmp_path)
    learner.fit(made_up.inputs, made_up.sent[:600], made_up.coin, 2)
    sizes = tuple(size + 1 for size in made_up.inputs.cardinalities)
    with pytest.raises(StorageError, match=r"(?s)network 0.safetensors is not of this network .* begins anew"):
        learner.fit(replace(made_up.inputs, cardinalities=sizes), made_up.sent[:600], made_up.coin, 2)


def test_a_party_that_is_killed_while_it_learns_goes_on_from_the_last_epoch(tmp_path):
    companies = Companies(tmp_path, table(900))
    learn = '[learn]\nlearner = "network"\nfloor = false\n'
    companies.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=learn)
    companies.align()
    told, killed = [], []

    def progress(what, done, total):
        told.append((what, done))
        if (what, done) == ("fitting a network", 2) and not killed:
            killed.append(len(told))
            raise KilledError

    def act(name, waiting):
        if name == "airline":
            return train_one_shot(companies.folder(name), waiting=waiting)
        with pytest.raises(KilledError):
            train_one_shot(companies.folder(name), waiting=waiting, progress=progress)
        assert (companies.run("airport") / "learning").exists()
        return train_one_shot(companies.folder(name), waiting=waiting, progress=progress)

    outcomes = companies.together(act)
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    before, after = told[: killed[0]], told[killed[0] :]
    assert ("learning without labels", 6) in before
    assert not any(what == "learning without labels" for what, _ in after), "that was done"
    assert ("fitting a network", 1) in before
    assert next(done for what, done in after if what == "fitting a network") == 2, "the first epoch was done"
    assert not (companies.run("airport") / "learning").exists()
