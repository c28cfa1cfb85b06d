"""Attacks on inputs, judged: the only place of the audit where true inputs and attacks meet.

The evaluator is the feature party, or a lab. It grants the attacks pairs of a random part of the rows, lets them guess,
and judges them on rows of which nothing was granted; these are the same for all attacks.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.audit import input_attacks
from tacit.audit.metrics.attribute_auc import attribute_auc
from tacit.audit.metrics.reconstruction import relative_error
from tacit.contracts import Estimate, InputAttack, KnownInputs, Noise, Reconstruction, View, noise_source
from tacit.errors import TensorError, UsageError


@dataclass(frozen=True)
class InputFinding:
    """What one attack read of the inputs; an attack on an attribute has an AUC, all others have an error.

    Attributes:
        attack: the attack's name.
        relative: the mean squared distance of a row from what the attacker believes, over that from the mean: 1 where
            nothing was read, 0 where all was.
        auc: how well the attribute's codes are told apart; 0.5 is a coin flip.
    """

    attack: str
    relative: Estimate | None = None
    auc: Estimate | None = None


def grant_inputs(inputs: Tensor, *, pairs: float = 0.5, attribute: Tensor | None = None, noise: Noise) -> KnownInputs:
    """What attackers are granted: inputs and attributes of a random part of the rows.

    Args:
        inputs: the input of each row id.  (number of ids, *input)
        pairs: the part of the rows that is known.
        attribute: the code of each row id's private attribute.  (number of ids,)
        noise: chooses which rows are known.
    """
    if not isinstance(inputs, Tensor) or inputs.ndim < 2 or not inputs.is_floating_point():
        raise TensorError("inputs are one row of floating numbers for each row id, (number of ids, *input)")
    if isinstance(pairs, bool) or not isinstance(pairs, int | float) or not 0 <= pairs < 1:
        raise UsageError(
            f"pairs = {pairs!r} is out of range: it is a share from 0 up to 1, and some rows must be judged"
        )
    if attribute is not None and attribute.shape != inputs.shape[:1]:
        raise TensorError(
            f"the attribute is {tuple(attribute.shape)} for {len(inputs)} rows: pass one code for each row id"
        )
    draw = noise_source(noise).uniform((len(inputs),), dtype=torch.float64, device=inputs.device)
    hidden = draw.argsort()[round(pairs * len(inputs)) :]
    return KnownInputs(
        inputs=inputs.detach().index_fill(0, hidden, torch.nan),
        attribute=None if attribute is None else attribute.long().index_fill(0, hidden, -1),
    )


def mean_visits(view: View) -> View:
    """The view of a label party that has averaged all embeddings of each example: noise falls, the example stays.

    >>> view = View.of_embeddings(torch.tensor([[[0.0], [2.0]], [[4.0], [2.0]]]), rows=torch.tensor([[7, 9], [7, 9]]))
    >>> averaged = mean_visits(view)
    >>> averaged.rows.tolist(), averaged.embedding.tolist()
    ([[7, 9]], [[[2.0], [2.0]]])
    """
    rows, places, counts = view.rows.flatten().unique(return_inverse=True, return_counts=True)
    z = view.embedding.flatten(0, 1)
    total = torch.zeros(len(rows), z.shape[1], dtype=torch.float64, device=z.device).index_add_(0, places, z.double())
    return View.of_embeddings((total / counts[:, None]).to(z.dtype)[None], rows=rows[None], role=view.role)


def attack_inputs(  # a public entry point: each setting by name
    view: View,
    inputs: Tensor,
    attacks: Sequence[InputAttack | str],
    *,
    noise: Noise,
    attribute: Tensor | None = None,
    pairs: float = 0.5,
    skipped: MutableMapping[str, str] | None = None,
) -> list[InputFinding]:
    """Run attacks on the embeddings of a transcript and judge them on rows of which nothing was granted.

    Args:
        view: the label party's view.
        inputs: the true input of each row id.  (number of ids, *input)
        attacks: attacks, or names of attacks with their default options.
        noise: where all randomness comes from.
        attribute: the code of each row id's private attribute, for attacks on it.  (number of ids,)
        pairs: see `grant_inputs`.
        skipped: where given, an attack that cannot run here is noted in it as attack -> reason and left out.
    """
    known = grant_inputs(inputs, pairs=pairs, attribute=attribute, noise=noise)
    findings = []
    for one in attacks:
        attack = input_attacks.attack(one) if isinstance(one, str) else one
        try:
            findings.append(_judged(attack, view, known, inputs, attribute, noise))
        except UsageError as reason:
            if skipped is None:
                raise
            skipped[attack.name] = str(reason)
    return findings


def _judged(
    attack: InputAttack,
    view: View,
    known: KnownInputs,
    inputs: Tensor,
    attribute: Tensor | None,
    noise: Noise,
) -> InputFinding:
    assert known.inputs is not None
    guess = _never_granted(attack(view, known, noise), view, known.inputs, attack.name)
    if getattr(attack, "guesses", "inputs") == "attribute":
        assert attribute is not None  # the attack would have refused
        return InputFinding(attack.name, auc=attribute_auc(guess, attribute))
    mean = known.inputs.double().nanmean(0).to(inputs.dtype)  # of the rows that were granted
    if bool(mean.isnan().any()):
        mean = inputs.mean(0)  # nobody was granted anything: the baseline knows more than the attack
    return InputFinding(attack.name, relative=relative_error(guess, inputs, mean))


def _never_granted(guess: Reconstruction, view: View, granted: Tensor, attack: str) -> Reconstruction:
    """The guess with no row counted that was granted to anybody: the same rows for every attack and share of pairs."""
    hidden = granted.flatten(1).isnan().any(1).to(guess.rows.device)  # (number of ids,)
    counted = guess.counted & hidden[guess.rows]
    wanted = view.rows.to(guess.rows.device).unique()
    if not torch.equal(guess.rows[counted].unique(), wanted[hidden[wanted]]):
        raise UsageError(
            f"the attack {attack!r} leaves out rows of which nothing was granted: it must say what it believes about "
            "all of them, or its error can't be compared with that of others"
        )
    return replace(guess, counted=counted)
