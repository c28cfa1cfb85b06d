"""The few shapes that all parts of Tacit agree on: what is sent and protected, attacked and measured.

They import torch and nothing of ours, so that every other part may import them.
"""

from tacit.contracts.attacked import (
    Attack,
    Estimate,
    Guess,
    InputAttack,
    Known,
    KnownInputs,
    Reconstruction,
    View,
)
from tacit.contracts.sent import (
    Channel,
    EmbeddingProtection,
    Event,
    Link,
    Message,
    Noise,
    NoiseSource,
    Protected,
    Protection,
    Regularizer,
    StepNoise,
    noise_source,
    raw_bytes,
)

__all__ = [
    "Attack",
    "Channel",
    "EmbeddingProtection",
    "Estimate",
    "Event",
    "Guess",
    "InputAttack",
    "Known",
    "KnownInputs",
    "Link",
    "Message",
    "Noise",
    "NoiseSource",
    "Protected",
    "Protection",
    "Reconstruction",
    "Regularizer",
    "StepNoise",
    "View",
    "noise_source",
    "raw_bytes",
]
