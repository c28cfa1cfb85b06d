"""A file is scored after a split training: the scores are those of both halves, exported and put together."""

import json
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import torch
from safetensors.torch import load_file

from tacit.align.encoder import Encoder, Inputs
from tacit.company.folder import Folder
from tacit.same_bits import in_blocks
from tacit.split.halves import build
from tests.company.conftest import small_companies
from tests.serve.files import together


def half(company, inputs, path):
    """A half of the model made anew, with the weights that were exported."""
    made = build(company, company.config, company.contract, inputs, seed=11)
    made.load_state_dict(load_file(company.export(path)))
    return made.eval()


def test_scores_are_those_of_the_exported_halves_bit_for_bit(tmp_path):
    companies = small_companies(tmp_path)
    with ThreadPoolExecutor(2) as both:
        list(both.map(Folder.align, companies, timeout=120))
        list(both.map(Folder.train, companies, timeout=120))
    airline, airport = (Folder(tmp_path / name) for name in ("airline", "airport"))
    asked = pl.DataFrame({"id": [3, 59, 777, 58, 0]})
    asked.write_parquet(tmp_path / "new.parquet")
    done = together(tmp_path, tmp_path / "new.parquet", tmp_path / "scores.parquet", match="keyed")
    assert done["airline"].joint == 4, done
    rows = asked.join(pl.read_parquet(airport.data), on="id", how="left", maintain_order="left")
    state = json.loads((airport.run_folder(airport.contract) / "inputs" / "encoder.json").read_bytes())
    inputs = Encoder.from_state(state).encode(rows)
    nothing = Inputs(torch.empty(5, 0, dtype=torch.int64), torch.empty(5, 0), ())  # the airline has no columns
    bottom, top = half(airport, inputs, tmp_path / "bottom.st"), half(airline, nothing, tmp_path / "top.st")
    with torch.no_grad():
        logits = in_blocks(top, [in_blocks(bottom, inputs.tensors), *nothing.tensors])
    scores = in_blocks(torch.sigmoid, [logits.double()]).flatten().tolist()
    assert pl.read_parquet(tmp_path / "scores.parquet")["score"].to_list() == [*scores[:2], None, *scores[3:]]
