"""A peer with the right certificate that aligns with one id, and hands the label party's own products back."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from tacit.align import psi
from tacit.align.control import decoded, expect
from tacit.align.curve import Engine, Points, byte_order
from tacit.align.ids import read_ids
from tacit.company.folder import Folder
from tacit.company.meeting import alignment_limits, said_hello
from tacit.contracts import Link, Message
from tacit.errors import RefusedError
from tacit.wire.codec import control
from tests.torture.intruder import reach

__all__ = ["echo"]

_WAIT = 20.0  # seconds for the label party's word


def echo(path: str | Path) -> str:
    """Come to an alignment with one id among fillers, echo the products, and act as if the ids were known.

    Returns the field that the label party refused for; "common" where it took the echo for common rows. All of it goes
    into one chunk, as tables of torture do.
    """
    folder = Folder(path)
    own = read_ids(folder.data, folder.table.ids)
    asked = np.concatenate([own.hashes[:1], _noise(2 * len(own))])
    link = reach(folder, folder.contract, alignment_limits())
    try:
        said_hello(link, folder, folder.contract)
        with Engine() as engine:
            _echo(link, folder, asked, engine)
    except RefusedError as error:
        return error.field
    finally:
        link.close()
    return "common"


def _echo(link: Link, folder: Folder, asked: Points, engine: Engine) -> None:
    agreed, nonce = folder.contract.alignment, secrets.token_bytes(16)
    hello = {"protocol": psi._PROTOCOL, "count": len(asked), "cap": agreed.largest_set, "minimum": agreed.smallest_set}
    link.send(control("commitment", 0, {**hello, "nonce": nonce.hex()}))
    said = decoded(expect(link, "commitment", 0, _WAIT), psi._HELLO)
    points = engine.blind(asked, secrets.token_bytes(32), domain=psi.DOMAIN)
    link.send(Message(0, "points", torch.from_numpy(points.copy()), b""))
    expect(link, "points", 0, _WAIT)
    products = expect(link, "matches", 0, _WAIT).payload
    count = said["count"]
    link.send(Message(0, "matches", products[:count].clone(), b""))
    believed, peer_nonce = asked[byte_order(asked[:count])], bytes.fromhex(said["nonce"])
    with suppress(RefusedError):  # that the label party takes other ids for common is no news
        psi._confirm(link, believed, engine, secrets.token_bytes(32), nonce, peer_nonce, _WAIT)
    expect(link, "matches", 0, _WAIT)  # which of the common rows stay


def _noise(count: int) -> Points:
    return np.frombuffer(secrets.token_bytes(32 * count), np.uint8).reshape(count, 32)
