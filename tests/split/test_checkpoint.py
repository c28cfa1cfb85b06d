"""Checkpoints: bit for bit what was saved, whole or not at all."""

import json
import math
import resource
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit import disk
from tacit.contracts import Event
from tacit.errors import StorageError, UsageError
from tacit.split.checkpoint import Checkpoints, flatten, load, rebuild, save
from tacit.split.models.wide_deep import RowwiseAdam
from tacit.split.protect import gradient
from tacit.split.protect.gradient import chain


@dataclass(frozen=True)
class Point:
    at: torch.Tensor
    name: str


def bits(tensor):
    return (tensor.dtype, tensor.shape, tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


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


EARLIER = (  # written before the library wrote these files: its metadata are in a fixed order
    b'\xe8\x01\0\0\0\0\0\0{"__metadata__":{"sha256":"05ee40e99152f4c373734855671e3a3c24647ade0cdcda4eb1a57255d331eb2d",'
    b'"format":"tacit-checkpoint-1","skeleton":"{\\"turn\\": null, \\"meta\\": {\\"dict\\": [[\\"run\\", \\"r\\"]]}, '
    b'\\"state\\": {\\"dict\\": [[\\"w\\", {\\"tensor\\": 0}], [\\"b\\", {\\"tensor\\": 1}], [\\"lr\\", {\\"float\\": '
    b'\\"0x1.999999999999ap-4\\"}], [7, {\\"tuple\\": [null, {\\"bytes\\": \\"6162\\"}]}]]}}"},"0":{"dtype":"I64",'
    b'"shape":[3],"data_offsets":[0,24]},"1":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}}       '
    b"\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\xc0?\0\x80"
)


def test_a_file_of_earlier_is_read(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(EARLIER)
    found = load(tmp_path / "a.safetensors")
    state = {"w": torch.arange(3), "b": torch.tensor([1.5, -0.0]).bfloat16(), "lr": 0.1, 7: (None, b"ab")}
    assert same(found.state, state)
    assert found.meta == {"run": "r"}


def test_tensors_that_share_memory_come_back_each_by_itself(tmp_path):
    tied = torch.arange(6.0)
    save(tmp_path / "a.safetensors", [tied, tied, tied.view(2, 3)[1]])
    assert same(load(tmp_path / "a.safetensors").state, [tied, tied, tied[3:]])


def test_a_class_is_made_only_if_it_is_one_of_ours(tmp_path):
    path = tmp_path / "a.safetensors"
    save(path, Point(torch.ones(2), "x"))
    with pytest.raises(StorageError, match="Point"):
        load(path)
    save(path, Event("none"))
    assert load(path).state == Event("none")


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


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.integers(0, 3), max_size=3).map(lambda shape: torch.arange(math.prod(shape)).reshape(shape).float()),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_any_tree_goes_through_json_and_back(anything):
    skeleton, tensors = flatten(anything)
    assert same(rebuild(json.loads(json.dumps(skeleton, allow_nan=False)), tensors), anything)


def test_axes_keep_their_order_in_memory(tmp_path):
    state = [torch.randn(3, 4, 5).permute(1, 2, 0), torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)]
    save(tmp_path / "a.safetensors", state)
    found = load(tmp_path / "a.safetensors").state
    assert [each.stride() for each in found] == [each.stride() for each in state]
    assert same(found, state)


# --- going on from a checkpoint ---


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.Linear(8, 1))


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01, amsgrad=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
    "adam of tensors": lambda params: torch.optim.Adam(params, lr=torch.tensor(0.01)),
    "rowwise": lambda params: RowwiseAdam(params, lr=0.01),
}


def train(model, optimizer, first, steps):
    for step in range(first, first + steps):
        x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()  # the dropout draws from torch's own state
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(tmp_path, name):
    whole = network()
    optimizer = OPTIMIZERS[name](whole.parameters())
    torch.manual_seed(11)
    train(whole, optimizer, 0, 10)

    half = network()
    optimizer = OPTIMIZERS[name](half.parameters())
    torch.manual_seed(11)
    train(half, optimizer, 0, 5)
    state = {"model": half.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    save(tmp_path / "half.safetensors", state)
    torch.manual_seed(99)

    found = load(tmp_path / "half.safetensors").state
    rest = network()
    rest.load_state_dict(found["model"])
    optimizer = OPTIMIZERS[name](rest.parameters())
    optimizer.load_state_dict(found["optimizer"])
    torch.set_rng_state(found["rng"])
    train(rest, optimizer, 5, 5)
    assert same(dict(rest.state_dict()), dict(whole.state_dict()))


PROTECTIONS = {
    "clip": lambda: gradient.protection("clip", norm=1.0),
    "iso": lambda: gradient.protection("iso", t=1.0),
    "marvell": lambda: gradient.protection("marvell", leak_auc=0.6, warmup=2),
    "matched": lambda: gradient.protection("matched", leak_auc=0.6, warmup=2),
    "matched visits": lambda: gradient.protection("matched", leak_auc=0.6, visits=4, warmup=2),
    "max_norm": lambda: gradient.protection("max_norm"),
    "none": lambda: gradient.protection("none"),
    "chain": lambda: chain(gradient.protection("clip", norm=1.0), gradient.protection("matched", scale=2.0, warmup=2)),
}


def protect(protection, state, first, steps):
    sent = []
    for step in range(first, first + steps):
        draw = torch.Generator().manual_seed(step)
        labels = (torch.rand(32, generator=draw) < 0.3).float()
        grad = torch.randn(32, 48, generator=draw) * torch.linspace(0.01, 1, 48) + labels[:, None]
        done = protection.update(grad, labels, state, draw, embedding=grad.roll(1, 0))
        state = done.state
        sent.append(done.value)
    return torch.stack(sent), state


def test_every_protection_is_tried():
    assert {name.split()[0] for name in PROTECTIONS} - {"chain"} == set(gradient.names())


@pytest.mark.parametrize("name", PROTECTIONS)
def test_protecting_goes_on_bit_for_bit(tmp_path, name):
    protection = PROTECTIONS[name]()
    whole, end = protect(protection, protection.init(), 0, 24)
    _, half = protect(protection, protection.init(), 0, 12)
    save(tmp_path / "half.safetensors", {"protection": half})
    rest, again = protect(PROTECTIONS[name](), load(tmp_path / "half.safetensors").state["protection"], 12, 12)
    assert bits(rest) == bits(whole[12:])
    assert same(again, end)


# --- classes ---


@dataclass
class Loose:
    x: int


def test_only_frozen_dataclasses_are_kept(tmp_path):
    with pytest.raises(UsageError, match="Loose"):
        save(tmp_path / "a.safetensors", Loose(1))


@pytest.mark.parametrize(
    "name",
    ["os:system", "tacit.split.checkpoint:save", "tacit.nowhere:State", "tacit.contracts:Protection", "builtins:dict"],
)
def test_a_name_that_is_no_dataclass_of_ours_is_refused(name):
    with pytest.raises(StorageError, match=name):
        rebuild({"dataclass": name, "fields": {}}, [])


def test_a_class_with_other_fields_is_refused():
    skeleton, tensors = flatten(Event("none"))
    del skeleton["fields"]["mechanism"]
    with pytest.raises(StorageError, match="another version"):
        rebuild(skeleton, tensors)


def test_a_tree_within_itself_is_refused(tmp_path):
    loop = []
    loop.append(loop)
    with pytest.raises(UsageError, match="within itself"):
        save(tmp_path / "a.safetensors", loop)


def test_meta_holds_no_tensors(tmp_path):
    with pytest.raises(UsageError, match="meta holds a tensor"):
        save(tmp_path / "a.safetensors", {}, {"w": torch.ones(1)})


# --- the disk ---


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {"w": torch.zeros(10)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"\d+ bytes were needed and \d+ are free"):
            checkpoints.write(2, {"w": torch.zeros(10_000)})
        with pytest.raises(StorageError, match="needed"):
            checkpoints.write(1, {"w": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000000001.safetensors"]
    assert same(checkpoints.newest().state, {"w": torch.zeros(10)})
    checkpoints.write(2, {"w": torch.zeros(10_000)})
    assert checkpoints.newest().turn == 2


@pytest.mark.parametrize("act", ["pwritev", "fdatasync"])
def test_a_crash_before_the_end_leaves_the_older_one_and_its_rest_is_removed(tmp_path, act):
    code = (
        "import os, signal, sys, torch; from tacit.split.checkpoint import Checkpoints; c = Checkpoints(sys.argv[1]); "
        "c.write(1, {'w': torch.zeros(9)}); setattr(os, sys.argv[2], lambda *a: os.kill(os.getpid(), signal.SIGKILL)); "
        "c.write(2, {'w': torch.ones(9)})"
    )
    child = subprocess.run([sys.executable, "-c", code, tmp_path, act], capture_output=True, timeout=60)
    assert child.returncode == -signal.SIGKILL
    left = tmp_path / "checkpoint-000000000002.safetensors.part"
    assert left.exists()
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest().turn == 1
    assert not checkpoints.damaged
    checkpoints.write(3, {})
    assert not left.exists()
    assert checkpoints.turns() == [1, 3]


def test_a_failed_sync_is_an_error(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk.os, "fdatasync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        save(tmp_path / "a.safetensors", {"w": torch.ones(2)})
    assert list(tmp_path.iterdir()) == []


def test_a_renamed_checkpoint_is_not_taken_for_another(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.write(1, {})
    (tmp_path / "c" / "checkpoint-000000000001.safetensors").rename(
        tmp_path / "c" / "checkpoint-000000000009.safetensors"
    )
    with pytest.raises(StorageError, match="checkpoint of turn 1, under another name"):
        checkpoints.newest()


def test_only_the_owner_can_read_it(tmp_path):
    Checkpoints(tmp_path / "c").write(1, {})
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").iterdir()} == {0o600}


def test_a_missing_file_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="No such file"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(UsageError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)
