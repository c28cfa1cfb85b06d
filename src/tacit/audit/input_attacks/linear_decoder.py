"""The linear decoder: what the best linear map reads of the inputs. Nobody can do much less."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.audit.input_attacks import _common
from tacit.audit.input_attacks._ridge import ridge
from tacit.contracts import InputAttack, KnownInputs, Noise, Reconstruction, View, noise_source

FACTS = Facts(order=10, live=True)


def linear_decoder(share: float = 0.5) -> InputAttack:
    """Guesses inputs by ridge regression on the embeddings, fitted on a share of pairs.

    The penalty is chosen on a fifth of its own examples, the mean being one of the candidates, so that embeddings that
    say nothing give about the error of the mean. All columns share one penalty.

    Args:
        share: of all examples of the view, how many pairs it learns from; where fewer are granted, all of those.

    Knows: the embeddings; known.inputs.
    Costs: O(pairs * width * (width + inputs)) and two eigendecompositions of size min(pairs, width), in float64.
    """
    _common.check_share("linear_decoder", share)
    return _LinearDecoder(share)


@dataclass(frozen=True)
class _LinearDecoder:
    share: float

    @property
    def name(self) -> str:
        return views.spelled("linear_decoder", share=None if self.share == 0.5 else self.share)

    def __call__(self, view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        seen = _common.seen(view, known, "linear_decoder")
        given = _common.inputs(known, "linear_decoder", seen.z.device)
        granted = _common.known_rows(seen.rows, given.x, "linear_decoder", "inputs")
        pairs = _common.pairs(seen.rows, granted, self.share, noise_source(noise), "linear_decoder")
        line = ridge(seen.z, given.x[seen.rows], *pairs.split())
        return Reconstruction(seen.rows, given.like(line(seen.z), seen.rows[pairs.fold >= 0]), pairs.hidden)
