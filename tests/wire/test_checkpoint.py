"""Checkpoints: bit for bit what was saved, whole or not at all."""

import math
from dataclasses import dataclass

import pytest
import safetensors.torch
import torch

from tacit.errors import StorageError, UsageError
from tacit.wire.checkpoint import Checkpoints, load, save


@dataclass(frozen=True)
class Point:
    at: torch.Tensor
    name: str


def bits(tensor):
    return (tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def same(a, b):
    """Equal in type, structure and bits."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and bits(a) == bits(b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    if hasattr(a, "__dataclass_fields__"):
        return same(vars(a), vars(b))
    return a == b


def tree():
    return {
        "none": None,
        "numbers": [True, 0, 1, 2**80, -1.5, -0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1],
        "text": ("\u0000\ud800é", b"\xff\x00", "", b""),
        7: {"nested": [(), [], {}]},
        "tensors": [
            torch.tensor([math.nan, -0.0, math.inf]).view(torch.int32).add_(3).view(torch.float32),
            torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,
            torch.tensor([True, False]),
            torch.zeros(0, 4),
            torch.tensor(3, dtype=torch.int64),
            torch.arange(10, dtype=torch.uint8)[::3],
            torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
            torch.nn.Parameter(torch.ones(2, dtype=torch.float16)),
        ],
    }


def test_a_tree_comes_back_bit_for_bit(tmp_path):
    save(tmp_path / "a.safetensors", tree(), {"run": "r", "turn": 3})
    found = load(tmp_path / "a.safetensors")
    assert same(tree(), found.state)
    assert found.meta == {"run": "r", "turn": 3}


def test_the_file_is_a_safetensors_file(tmp_path):
    save(tmp_path / "a.safetensors", tree())
    tensors = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert [bits(tensors[str(i)]) for i in range(8)] == [bits(each.detach()) for each in tree()["tensors"]]


def test_a_class_is_made_only_where_it_is_allowed(tmp_path):
    path = tmp_path / "a.safetensors"
    save(path, Point(torch.ones(2), "x"))
    with pytest.raises(StorageError, match="Point"):
        load(path)
    assert same(load(path, allow=(Point,)).state, Point(torch.ones(2), "x"))


@pytest.mark.parametrize("thing", [{1.5: 0}, object(), {1, 2}, [torch.zeros(2).to_sparse()], torch.float32])
def test_what_a_checkpoint_cannot_hold_is_refused(tmp_path, thing):
    with pytest.raises(UsageError, match="state"):
        save(tmp_path / "a.safetensors", {"x": thing})
    assert list(tmp_path.iterdir()) == []


def test_the_newest_whole_one_is_taken(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    assert checkpoints.newest() is None
    for turn in (10, 20, 30, 40):
        checkpoints.write(turn, {"w": torch.full((2,), float(turn))}, {"n": turn})
    assert checkpoints.turns() == [20, 30, 40]
    assert checkpoints.newest().meta == {"n": 40}
    assert checkpoints.newest(at_most=39).turn == 30
    assert checkpoints.newest(at_most=19) is None
    newest = tmp_path / "checkpoint-000000000040.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert checkpoints.newest().turn == 30
    assert list(checkpoints.damaged) == [newest]
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(StorageError, match="none of 3 checkpoints"):
        checkpoints.newest()


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "a.safetensors"
    save(path, {"w": torch.arange(3), "b": torch.tensor([1.0, 2.0]), "lr": 0.1})
    good = path.read_bytes()
    for place in range(len(good)):
        for flip in (0x01, 0x80, 0x20):
            path.write_bytes(good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :])
            with pytest.raises(StorageError, match=r"a\.safetensors"):
                load(path)
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(StorageError, match=r"a\.safetensors"):
            load(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(StorageError, match="not what was written"):
        load(path)
