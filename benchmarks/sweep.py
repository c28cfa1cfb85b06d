"""Stacked training over the plain step and over as many single runs, on the papers' Wide&Deep.

On CUDA also the time of an update, on generated data with Criteo's columns and a million codes, and of the papers'
whole figure: 20,140 updates of 64 replicas, every attack on batches, tests and compilation; the goal is a minute.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import torch

from benchmarks._measure import Result, interleaved, seconds
from benchmarks.step import BATCH, CATEGORIES, NUMBERS, REPEATS, VOCABULARY, data, plain_step, split_step
from tacit.lab.data import generated
from tacit.lab.data.rows import Data, Rows, Table
from tacit.lab.stack.measuring import EVERY_BATCH
from tacit.lab.stack.network import network_for
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.recipe import Plan, recipe_for
from tacit.lab.sweeping.settings import Setting, grid
from tacit.lab.sweeping.wave import Row, Wave

REPLICAS = 8
ON_CUDA = 4_584_062  # a tenth of Criteo's rows, as in the papers
UPDATES = 400  # for each time that is taken on CUDA


def run() -> Iterator[Result]:
    """On the CPU by turns with what they are compared with; on CUDA each by itself."""
    codes, numbers, labels = data()
    rows = Rows((codes, numbers), (codes, numbers), labels)
    one = [Setting("marvell", "scale", 4.0)]
    several = [Setting("marvell", "scale", 2.0**i) for i in range(REPLICAS)]
    steps = [
        plain_step(), split_step("marvell", {"scale": 4.0}), _stacked(rows, one, attacks=("norm",), layers=("cut",)),
        _stacked(rows, several, attacks=("norm",), layers=("cut",)), _stacked(rows, several),
    ]  # fmt: skip
    plain, split, single, bare, all_on = (statistics.median(times) for times in interleaved(*steps, rounds=8, warmup=2))
    yield Result("sweep", "one replica in a stack over a plain step", single / plain, "x")
    case = f"{REPLICAS} replicas, norm at the cut, over {REPLICAS} plain steps"
    yield Result("sweep", case, bare / plain / REPLICAS, "x")
    case = f"{REPLICAS} replicas, all attacks of every batch at two layers, over {REPLICAS} split steps without any"
    yield Result("sweep", case, all_on / split / REPLICAS, "x")
    yield Result("sweep", f"rows a second, {REPLICAS} replicas, all attacks", BATCH * REPEATS / all_on, "rows/s")
    if torch.cuda.is_available():
        yield from _on_cuda()


def _stacked(
    rows: Rows, settings: list[Setting], attacks: Sequence[str] = EVERY_BATCH, layers: Sequence[str] = ("cut", "layer1")
) -> Callable[[], None]:
    columns = (VOCABULARY,) * CATEGORIES
    network = network_for(Table(columns, NUMBERS, columns, NUMBERS))
    stack = Stack(rows, network, settings, batch_size=BATCH, attacks=attacks, layers=layers)
    plan = stack.plan(0)
    place = iter(range(10**9))

    def step() -> None:
        first = next(place) % 2 * REPEATS
        stack.advance(plan[:, first : first + REPEATS])

    return step


def _on_cuda() -> Iterator[Result]:
    """Milliseconds for an update, every leak of the cut and the first layer measured on every batch."""
    made = generated.like("criteo", ON_CUDA, 0, device="cuda")
    device = torch.cuda.get_device_name()
    papers = grid(("iso", "marvell", "max_norm"), 31)
    for settings, goal in (([Setting("marvell", "scale", 4.0)], 0.45), (papers, 6.0)):
        stack = Stack(
            made.train, network_for(made.inputs), settings, batch_size=BATCH, learning_rate=1e-4, device="cuda",
            tf32=True,
        )  # fmt: skip
        plan = stack.plan(0)
        stack.advance(plan[:, :30])  # compiled and captured
        work = lambda stack=stack, plan=plan: stack.advance(plan[:, 30 : 30 + UPDATES])  # noqa: E731
        each = statistics.median(interleaved(work, rounds=3, warmup=0)[0]) / UPDATES
        yield Result("sweep", f"an update of {len(settings)} replicas on {device}", each * 1e3, "ms", goal)
    took = seconds(lambda: figure(made, papers))
    yield Result("sweep", f"the papers' Criteo figure on {device}, kernels cached", took, "s", 60.0)


def figure(made: Data, settings: Sequence[Setting]) -> list[Row]:
    """The papers' trainings and what is measured on the way, as rows of results."""
    recipe = recipe_for(made, Plan(thorough=False, device="cuda"))
    return Wave(recipe, made, dict(enumerate(settings))).run()
