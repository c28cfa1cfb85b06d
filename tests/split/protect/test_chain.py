import pytest
import torch

from tacit.contracts import Protected
from tacit.errors import TensorError, UsageError
from tacit.split.protect.gradient import chain
from tacit.split.protect.gradient.clip import clip
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.gradient.marvell import marvell
from tacit.split.protect.gradient.max_norm import max_norm
from tacit.split.protect.gradient.none import none


@pytest.fixture(name="rows")
def _rows(seeded):
    labels = (torch.arange(40) % 4 == 0).double()
    return torch.randn(40, 5, generator=seeded(0), dtype=torch.float64) + 2 * labels[:, None], labels


def test_each_link_gets_what_the_one_before_it_returned(rows, seeded):
    grad, labels = rows
    noise = seeded(1)
    by_hand = iso(0.5)(marvell(scale=4.0)(clip(1.0)(grad, labels, noise).value, labels, noise).value, labels, noise)
    linked = chain(clip(1.0), marvell(scale=4.0), iso(0.5))(grad, labels, seeded(1))
    assert torch.equal(linked.value, by_hand.value)
    swapped = chain(marvell(scale=4.0), clip(1.0))(grad, labels, seeded(1)).value
    assert (swapped.norm(dim=1) <= 1 + 1e-12).all()
    assert not (linked.value.norm(dim=1) <= 1 + 1e-12).all()


def test_every_link_has_its_own_state_over_a_run(rows, seeded):
    grad, labels = rows
    links = (iso(0.1), marvell(scale=4.0, warmup=2), marvell(scale=1.0, warmup=1))
    whole = chain(*links)
    state, noise = whole.init(), seeded(2)
    states, other = [link.init() for link in links], seeded(2)
    for step in range(4):
        answer = whole.update(grad, labels, state, noise)
        value = grad
        for i, link in enumerate(links):
            part = link.update(value, labels, states[i], other)
            value, states[i] = part.value, part.state
        assert torch.equal(answer.value, value)
        state = answer.state
        assert isinstance(state, tuple)
        assert state[0] is None
        assert [s.step for s in state[1:]] == [s.step for s in states[1:]]
        assert torch.equal(state[2].packed, states[2].packed)
        assert answer.report["stateless"] == (step < 1)  # the last link's figures


def test_the_event_lists_the_links_in_order(rows, seeded):
    grad, labels = rows
    event = chain(clip(2.0), chain(iso(1.0), none()))(grad, labels, seeded(3)).event
    assert event.mechanism == "chain"
    assert [part.mechanism for part in event.parts] == ["clip", "chain"]
    assert event.parts[0].parameters == {"norm": 2.0}
    assert [part.mechanism for part in event.parts[1].parts] == ["iso", "none"]
    assert chain(clip(2.0), iso(1.0)).name == "clip + iso"


def test_untouched_rows_are_those_that_no_link_touched(seeded):
    grad = torch.tensor([[3.0, 4.0], [0.6, 0.8], [0.1, 0.0], [0.2, 0.0]])
    labels = torch.tensor([0, 1, 0, 1])
    for links, untouched in (
        ((none(), none()), 4),
        ((clip(0.5), none()), 2),
        ((none(), clip(0.5)), 2),
        ((none(), max_norm()), 1),
        ((none(), iso(1.0)), 0),
        ((iso(1.0), none()), 0),
    ):
        answer = chain(*links)(grad, labels, seeded(4))
        assert answer.report["untouched_rows"].item() == untouched, links
        assert int((answer.value == grad).all(1).sum()) == untouched
        assert set(answer.report) >= {"power", "valid"}


def test_power_is_what_all_links_spent(rows, seeded):
    grad, labels = rows
    largest = (grad**2).sum(1).max().item()
    first = iso(2.0)(grad, labels, seeded(8))
    second = 0.5 * (first.value**2).sum(1).max().item()
    report = chain(iso(2.0), iso(0.5))(grad, labels, seeded(8)).report
    assert report["power"].item() == pytest.approx(2 * largest + second, rel=1e-9)


def test_a_stack_goes_through_as_one_batch_does(rows, seeded, replay):
    grad, labels = rows
    normal = torch.randn(3, 40, 5, generator=seeded(5), dtype=torch.float64)
    whole = chain(clip(1.5), marvell(sum_kl=0.3))
    together = whole(grad.expand(3, -1, -1), labels.expand(3, -1), replay(normal))
    for i in range(3):
        alone = whole(grad, labels, replay(normal[i]))
        torch.testing.assert_close(together.value[i], alone.value, rtol=1e-9, atol=1e-9)
    assert together.report["untouched_rows"].shape == (3,)


def test_links_may_be_anything_with_the_shape_of_a_protection(rows, seeded):
    class Double:
        def init(self):
            return 0

        def update(self, grad, labels, state, noise, embedding=None):
            event = none()(grad, labels, noise).event
            report = {"untouched_rows": torch.tensor(0.0), "power": torch.tensor(3.0), "seen": embedding}
            return Protected(2 * grad, state + 1, event, report)

        def __call__(self, grad, labels, noise, embedding=None):
            return self.update(grad, labels, 0, noise, embedding)

    grad, labels = rows
    embedding = torch.ones(40, 2)
    whole = chain(Double(), Double())
    answer = whole.update(grad, labels, (0, 5), seeded(6), embedding)
    assert torch.equal(answer.value, 4 * grad)
    assert answer.state == (1, 6)
    assert answer.report["seen"] is embedding
    assert answer.report["power"] == 6.0
    assert whole(grad, labels, seeded(6), embedding).report["seen"] is embedding
    assert whole.name == "Double + Double"


def test_a_broken_gradient_is_refused_by_the_first_link(rows, seeded):
    grad, labels = rows
    grad[7, 0] = torch.nan
    with pytest.raises(TensorError, match="row 7"):
        chain(none(), iso(1.0))(grad, labels, seeded(7))


def test_an_empty_chain_and_what_is_no_protection_are_refused():
    with pytest.raises(UsageError, match=r"none\(\)"):
        chain()
    with pytest.raises(UsageError, match="call the factory first"):
        chain(clip(1.0), marvell)
    with pytest.raises(UsageError, match="'iso'"):
        chain("iso")
