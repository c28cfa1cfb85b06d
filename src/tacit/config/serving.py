"""How a party answers while it serves: `[serve]` of its party.toml, of which nothing needs to be set."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from tacit.config.files import Address, Count, Positive, Section, Switch, Text, Whole


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):  # what stands there may be a password: it is not repeated
        raise ValueError(
            'what stands there is no name of an environment variable: write for example "TACIT_ROWS_URL", and put the '
            "connection string into that variable, never into this file"
        )
    return value


Variable = Annotated[str, AfterValidator(_variable)]
"""The environment variable that a connection string is taken from."""


class Serve(Section):
    """How `tacit serve` answers; all of it has defaults.

    Attributes:
        http: host and port of the HTTP endpoint. A label party's is 127.0.0.1:7080 if not given; a feature party's,
            which has /health, /ready and /metrics alone, is off. Where other machines can reach it, it needs a token in
            TACIT_SERVE_TOKEN and a proxy before it (`--behind-proxy`).
        deadline_ms: in which a request is answered, by the fallback where a partner is slow; partners have three
            quarters of it. A label party's, as all up to request_bytes.
        fallback: whether rows without all embeddings are scored by the model without partners, where there is one.
        batch_ms: while a message is on its way to a partner, requests wait so long for others to go with them.
        cache_seconds: for so long an embedding that came is used again; 0 for never.
        cache_rows: embeddings of each partner that are kept for that, at most.
        rows_a_request: at most.
        waiting_rows: that may be under way at a time; beyond them the answer is 503.
        request_bytes: of a request's body, at most.
        rows_a_minute: that a feature party answers, on average; beyond it a request is refused.
        different_rows: that it answers over the whole life of the model, each once; a row whose columns have changed
            since counts again.
        refresh_seconds: after which a feature party looks for rows that are new or gone; 0 for never.
        rows: a Parquet or CSV file, relative to the party's folder, with the rows that a feature party answers; held in
            memory, and read again when it has changed. The table under [data] if not given.
    """

    http: Address | None = None
    deadline_ms: Whole = 500
    fallback: Switch = True
    batch_ms: Annotated[Positive, Field(le=1000)] = 2.0
    cache_seconds: Count = 60
    cache_rows: Whole = 100_000
    rows_a_request: Annotated[Whole, Field(le=4096)] = 1000
    waiting_rows: Whole = 10_000
    request_bytes: Whole = 1 << 20
    rows_a_minute: Whole = 60_000
    different_rows: Whole = 1_000_000
    refresh_seconds: Count = 300
    rows: Text | None = None
