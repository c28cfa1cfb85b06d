"""Two companies that agree on float16: what may come, and what each of them records."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tacit.company.folder import Folder
from tacit.company.meeting import training_limits
from tacit.contracts import Message
from tacit.cut.float16 import scaled, unscaled
from tacit.errors import ProtocolError
from tacit.wire.codec import Assembler, encode
from tacit.wire.record import RecordedRun

BATCH, WIDTH = 16, 4


def agreed(company):
    """The folder with float16 in its contract."""
    contract = company.path / "contract.toml"
    contract.write_text(contract.read_text() + 'cut.dtype = "float16"\n')
    return Folder(company.path)


def sent(dtype):
    """A message of each kind as a party sends it under such a contract."""
    z = torch.ones(BATCH, WIDTH)
    gradient = scaled(z) if dtype is torch.float16 else z
    payloads = {"embedding": z.to(dtype), "gradient": gradient, "evaluation": z.to(dtype)}
    return [Message(0, kind, payload, bytes(16)) for kind, payload in payloads.items()]


def test_exactly_the_agreed_dtype_may_come(companies):
    limits = {torch.float32: training_limits(companies[1].contract, "airport")}
    limits[torch.float16] = training_limits(agreed(companies[1]).contract, "airport")
    for here, limit in limits.items():
        for there in limits:
            for message in sent(there):
                (frame,) = encode(message)
                if here is there:
                    assert Assembler(limit).feed(frame).payload.dtype is here
                    continue
                says = rf"{message.kind} of step 0: {str(there)[6:]} .* came, {str(here)[6:]} .* is agreed"
                with pytest.raises(ProtocolError, match=says):
                    Assembler(limit).feed(frame)


def test_both_record_the_bits_that_left(companies):
    companies = [agreed(company) for company in companies]
    with ThreadPoolExecutor(2) as both:
        list(both.map(Folder.align, companies, timeout=120))
        list(both.map(Folder.train, companies, timeout=120))
    runs = [company.run_folder(company.contract) for company in companies]
    ours, theirs = (RecordedRun.open(run / "transcript").batches() for run in runs)
    order = [[step.tolist() for step in kept.view.rows] for kept in (ours, theirs)]
    common = [(order[0].index(rows), order[1].index(rows)) for rows in order[0] if rows in order[1]]
    assert common, "both keep all batches of a run so short"
    for here, there in common:
        assert torch.equal(ours.view.embedding[here], theirs.view.embedding[there])
        assert torch.equal(ours.view.gradient[here], theirs.view.gradient[there])
    for z in (ours.view.embedding, theirs.view.embedding):
        assert z.dtype is torch.float32
        assert torch.equal(z, z.half().float())
    for clean, gradient in zip(ours.clean, ours.view.gradient, strict=True):  # bare, but rounded
        assert torch.equal(unscaled(scaled(clean), clean.shape), gradient)
