"""The linear decoder: what the best linear map reads of the inputs. Nobody can do much less."""

from __future__ import annotations

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

    def guess(view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        pairs = _common.pairs(view, known, "inputs", share, noise_source(noise), "linear_decoder")
        line = ridge(pairs.z, pairs.known[pairs.rows], *pairs.split())
        return Reconstruction(pairs.rows, pairs.believed(line(pairs.z)), pairs.hidden)

    return views.named(linear_decoder, guess, share=share)
