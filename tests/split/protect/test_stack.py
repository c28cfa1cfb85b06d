"""Replicas of several protections and strengths in one call give what each gives alone."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import pytest
import torch
from torch import Tensor

from tacit.contracts import noise_source
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.protect.gradient import chain, protection, stacked

CLOSE = {torch.float64: (1e-12, 1e-12), torch.float32: (1e-5, 1e-5)}  # of a report, and of what is sent


class Each:
    """A source for a group: every member draws from a generator of its own, as it would alone."""

    def __init__(self, *seeds: int) -> None:
        self.sources = [noise_source(torch.Generator().manual_seed(seed)) for seed in seeds]

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        assert shape[0] == len(self.sources)
        return torch.cat([source.normal((1, *shape[1:]), dtype=dtype, device=device) for source in self.sources])

    uniform = normal


def batches(step: int, replicas: int, *, size: int = 24, cut: tuple[int, ...] = (6,), dtype: torch.dtype):
    """Gradients of both classes; now and then a replica has one class, one positive, or nothing but zeros."""
    g = torch.Generator().manual_seed(1000 + step)
    labels = (torch.rand(replicas, size, generator=g) < 0.3).long()
    labels[:, 0], labels[:, 1] = 1, 0
    kind = step % 5
    if kind == 3:
        labels[step % replicas] = step % 2
    if kind == 4:
        labels[step % replicas] = torch.arange(size) == 2
    p = torch.rand(replicas, size, generator=g, dtype=torch.float64)
    direction = torch.randn(*cut, generator=g, dtype=torch.float64)
    spread = torch.randn(replicas, size, *cut, generator=g, dtype=torch.float64)
    grad = (p - labels).reshape(replicas, size, *[1] * len(cut)) * (direction + 0.4 * spread) * 0.1
    if step == 9:
        grad[step % replicas] = 0
    return grad.to(dtype), labels


def both(made, steps: int, *, dtype=torch.float64, size: int = 24, cut: tuple[int, ...] = (6,), shape=None):
    """Each step's answer, with what every replica's own protection sends and reports on the same noise."""
    together = stacked(made)
    state, alone = together.init(), [each.init() for each in made]
    noises = [Each(*group) for group in together.groups]
    own = [torch.Generator().manual_seed(replica) for replica in range(len(made))]
    for step in range(steps):
        grad, labels = batches(step, len(made), size=size, cut=cut, dtype=dtype)
        grad = grad if shape is None else (grad.double() @ shape).to(dtype)
        answer = together.update(grad, labels, state, noises)
        single = [each.update(grad[r], labels[r], alone[r], own[r], grad[r] * 3) for r, each in enumerate(made)]
        state, alone = answer.state, [done.state for done in single]
        yield step, answer, single


def assert_same(made, steps: int = 40, *, dtype: torch.dtype = torch.float64, **sizes) -> None:
    figure, sent = CLOSE[dtype]
    for step, answer, single in both(made, steps, dtype=dtype, **sizes):
        whole = torch.stack([done.value for done in single]).flatten(start_dim=1)
        off = (answer.value.flatten(start_dim=1) - whole).abs().amax(-1)
        assert answer.value.dtype == dtype
        assert (off <= sent * whole.abs().amax(-1)).all(), f"step {step}: off by {off.tolist()}"
        for name, value in answer.report.items():
            assert value.shape == (len(made),)
            wanted = [float(done.report.get(name, 0.0)) for done in single]
            assert value.tolist() == pytest.approx(wanted, rel=figure, abs=1e-30), f"{name}, step {step}"


def iso(t: float):
    return protection("iso", t=t)


STRENGTHS = {
    "iso": [{"t": t} for t in (0.01, 1.0, 25.0)],
    "clip": [{"norm": norm} for norm in (0.01, 0.1, 10.0)],
    "max_norm": [{}, {}],
    "none": [{}, {}],
    "marvell scale": [{"scale": scale} for scale in (0.1, 4.0, 40.0)],
    "marvell sum_kl": [{"sum_kl": k} for k in (0.01, 0.16, 3.6)],
    "marvell leak_auc": [{"leak_auc": auc, "warmup": 5} for auc in (0.51, 0.6, 0.9)],
    "marvell detection_error": [{"detection_error": error, "warmup": 0} for error in (0.1, 0.4)],
    "matched scale": [{"scale": scale} for scale in (0.1, 4.0, 40.0)],
    "matched leak_auc": [{"leak_auc": auc, "warmup": 5} for auc in (0.51, 0.6, 0.9)],
    "matched visits": [{"leak_auc": auc, "visits": 4} for auc in (0.55, 0.7)],
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", STRENGTHS)
def test_every_strength_as_alone(name, dtype):
    made = [protection(name.split()[0], **options) for options in STRENGTHS[name]]
    assert stacked(made).groups == (tuple(range(len(made))),)
    assert_same(made, 20, dtype=dtype)


def mixed() -> list:
    """Every protection, chains among them, in an order that is not grouped."""
    return [
        iso(1.0),
        protection("marvell", scale=4.0),
        protection("none"),
        protection("matched", leak_auc=0.6),
        protection("marvell", scale=0.5),
        chain(protection("clip", norm=0.1), protection("marvell", leak_auc=0.6)),
        protection("max_norm"),
        iso(25.0),
        protection("matched", leak_auc=0.8),
        protection("marvell", leak_auc=0.6),
        chain(protection("clip", norm=1.0), protection("marvell", leak_auc=0.9)),
        protection("matched", leak_auc=0.6, visits=3),
        protection("none"),
        chain(protection("clip", norm=1.0), protection("matched", leak_auc=0.6)),
    ]


def test_what_differs_in_more_than_its_strength_stays_apart():
    together = stacked(mixed())
    assert together.groups == ((0, 7), (1, 4), (2, 12), (3, 8), (5, 10), (6,), (9,), (11,), (13,))


def test_a_mixed_stack_in_any_order():
    assert_same(mixed(), dtype=torch.float32)


def test_the_order_of_the_replicas_does_not_matter():
    made, turned = mixed(), [3, 12, 0, 7, 13, 1, 10, 2, 5, 9, 4, 11, 8, 6]
    grad, labels = batches(0, len(made), dtype=torch.float64)
    one, other = stacked(made), stacked([made[i] for i in turned])
    first = one.update(grad, labels, one.init(), [Each(*group) for group in one.groups])
    seeds = [Each(*(turned[i] for i in group)) for group in other.groups]
    second = other.update(grad[turned], labels[turned], other.init(), seeds)
    torch.testing.assert_close(second.value, first.value[turned], rtol=1e-12, atol=1e-12)
    for name, figure in first.report.items():
        torch.testing.assert_close(second.report[name], figure[turned], rtol=1e-9, atol=0, msg=name)


@pytest.mark.parametrize("cut", [(1,), (2, 3)], ids=str)
def test_cuts_of_any_shape(cut):
    made = [
        *(protection("matched", leak_auc=auc, visits=2) for auc in (0.55, 0.8)),
        *(protection("marvell", scale=scale) for scale in (1.0, 8.0)),
    ]
    assert_same(made, 20, cut=cut)


@pytest.mark.parametrize("rank", [300, 20], ids=["full", "few directions"])
def test_a_wide_cut(rank):
    """The leading coordinates are the same with few rows too, and with rows that vary in few directions.

    Of gradients in few directions all others are chance: what a replica is sent is the same to 1e-4 after 20 steps.
    """
    made = [protection("matched", leak_auc=auc, visits=2) for auc in (0.55, 0.8)]
    axes = torch.linalg.qr(torch.randn(300, rank, generator=torch.Generator().manual_seed(3), dtype=torch.float64))[0]
    shape = (axes * torch.logspace(0, 0 if rank == 300 else -3, rank, dtype=torch.float64)) @ axes.mT
    for step, answer, single in both(made, 20, size=40, cut=(300,), dtype=torch.float32, shape=shape):
        alone = torch.stack([done.value for done in single])
        assert (answer.value - alone).abs().amax() <= 1e-4 * alone.abs().amax(), step
        assert answer.report["power"].tolist() == pytest.approx([float(d.report["power"]) for d in single], rel=1e-4)


def test_grouped_replicas_are_views_and_the_input_stays_as_it_was(monkeypatch):
    made = [iso(1.0), iso(2.0), protection("max_norm"), protection("none")]
    grad, labels = batches(0, 4, dtype=torch.float32)
    before, together = grad.clone(), stacked(made)
    monkeypatch.setattr(Tensor, "index_select", None)  # nothing is gathered
    answer = together.update(grad, labels, together.init(), [Each(0, 1), Each(2), Each(3)])
    assert torch.equal(grad, before)
    assert torch.equal(answer.value[3], grad[3])
    assert answer.value.untyped_storage().data_ptr() != grad.untyped_storage().data_ptr()


# --- steady steps ----------------------------------------------------------------------------------------------------


def after(made, steps: int):
    """A stack of these protections, and its state after so many steps."""
    together = stacked(made)
    state = together.init()
    for _, answer, _ in both(made, steps):
        state = answer.state
    return together, state


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([iso(1.0), protection("none"), protection("max_norm"), protection("clip", norm=1.0)], "....."),
        ([protection("marvell", scale=4.0), protection("marvell", scale=1.0)], "--..."),
        ([protection("marvell", scale=4.0, warmup=0)], "-...."),
        ([protection("matched", scale=4.0), iso(1.0)], "---++.+...+......."),
        ([protection("marvell", scale=4.0, warmup=4), protection("matched", scale=1.0, warmup=1)], "----.+...+"),
        ([chain(protection("clip", norm=1.0), protection("matched", scale=4.0, warmup=1))], "--++.+."),
    ],
    ids=["stateless", "marvell", "no warm-up", "matched", "two of them", "chain"],
)
def test_which_form_each_step_has(made, told):
    """Steps that can't be captured, those of the usual form, and those at which matched makes its factors anew."""
    together = stacked(made)
    states = [together.init(), *(answer.state for _, answer, _ in both(made, len(told) - 1))]
    forms = [together.form(state) for state in states]
    assert "".join("-" if form is None else "+" if "anew" in str(form) else "." for form in forms) == told
    assert len({form for form in forms if form is not None}) == len(set(told) - {"-"})


def shape_of(state):
    """The structure of a state, with tensors told by their shapes and numbers left out."""
    if isinstance(state, Tensor):
        return tuple(state.shape), state.dtype
    if is_dataclass(state):
        return type(state), {each.name: shape_of(getattr(state, each.name)) for each in fields(state)}
    if isinstance(state, tuple):
        return [shape_of(part) for part in state]
    return None if state is None else type(state)


def test_steps_that_can_be_captured_keep_the_structure_of_the_state():
    made = [protection("matched", leak_auc=0.6), protection("marvell", scale=4.0), iso(1.0)]
    together = stacked(made)
    state, seen = together.init(), 0
    for _, answer, _ in both(made, 40):
        if (form := together.form(state)) is not None:
            seen += 1
            assert shape_of(answer.state) == shape_of(state)
            assert (answer.state[0].factors is state[0].factors) == ("anew" not in form)
        state = answer.state
    assert seen > 25


def test_advanced_moves_the_public_step_and_nothing_else():
    made = [
        protection("matched", leak_auc=0.6),
        protection("marvell", scale=4.0),
        iso(1.0),
        chain(protection("clip", norm=1.0), protection("marvell", scale=4.0)),
    ]
    together, state = after(made, 7)
    moved = together.advanced(state)
    assert (moved[0].step, moved[1].step, moved[2], moved[3][0], moved[3][1].step) == (8, 8, None, None, 8)
    assert moved[0].factors is state[0].factors
    assert moved[1].packed is state[1].packed


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 1, 3]], ids=["grouped", "apart"])
def test_bad_input_names_the_replica(order):
    kinds = [iso(1.0), iso(2.0), protection("marvell", scale=1.0), protection("marvell", scale=2.0)]
    together = stacked([kinds[i] for i in order])
    noises = [Each(0, 1), Each(2, 3)]
    for replica in range(4):
        grad, labels = batches(0, 4, dtype=torch.float32)
        bad = grad.clone()
        bad[replica, 5, 2] = torch.nan
        with pytest.raises(TensorError, match=f"^replica {replica}: the gradient of row 5 is not finite"):
            together.update(bad, labels, together.init(), noises)
        wrong = labels.clone()
        wrong[replica, 7] = 2
        with pytest.raises(LabelsError, match=f"^replica {replica}: label 2 at row 7"):
            together.update(grad, wrong, together.init(), noises)


def test_too_large_gradients_name_their_replicas():
    labels = batches(0, 2, dtype=torch.float32)[1]
    together = stacked([protection("none"), iso(1e6), iso(1e9)])
    huge = batches(0, 3, dtype=torch.float32)[0] * 1e34
    with pytest.raises(TensorError, match=r"^one of the replicas 1, 2: noise for gradients this large"):
        together.update(huge, labels[[0, 1, 1]], together.init(), [Each(0), Each(1, 2)])


def test_what_does_not_fit_is_refused():
    together = stacked([iso(1.0), iso(2.0), protection("none")])
    grad, labels = batches(0, 3, dtype=torch.float32)
    noises = [Each(0, 1), Each(2)]
    with pytest.raises(TensorError, match="is no stack of 3 replicas"):
        together.update(grad[:2], labels[:2], together.init(), noises)
    with pytest.raises(TensorError, match="is no stack of 3 replicas"):
        together.update(grad[0], labels[0], together.init(), noises)
    with pytest.raises(UsageError, match="1 sources of noise for 2 groups"):
        together.update(grad, labels, together.init(), noises[:1])
    with pytest.raises(UsageError, match="at least one protection"):
        stacked([])


class Own:
    """Somebody's own protection, which says nothing of strengths."""

    init = update = __call__ = lambda *_: None


def test_other_protections_are_refused_by_their_replica():
    for other in (Own(), chain(protection("clip", norm=1.0), Own())):
        with pytest.raises(UsageError, match="replica 1 has a protection of its own making"):
            stacked([iso(1.0), other])


@pytest.mark.parametrize(
    ("name", "option"), [("iso", "t"), ("clip", "norm"), ("marvell", "scale"), ("matched", "leak_auc")]
)
def test_factories_take_numbers_only(name, option):
    with pytest.raises(UsageError, match=option):
        protection(name, **{option: torch.tensor([0.6, 0.7])})
