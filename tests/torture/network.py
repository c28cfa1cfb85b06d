"""Trials on the network between the parties: cuts, silence, delay, connections that break at any moment."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack

from benchmarks._relay import Relay
from tacit.wire.network import allow_files
from tests.torture.bench import Bench, Result
from tests.torture.intruder import Flood
from tests.torture.packets import ADDRESSES, PacketLine
from tests.torture.processes import ROOT, WORKER, read_events
from tests.torture.world import FEATURES, LABEL, PARTIES, Training, check, free_port

__all__ = ["broken_again_and_again", "cut", "delayed", "flooded", "forgotten", "lossy", "silenced"]

_DELAY = 0.04  # seconds each way
_LOSS = 0.02  # of all packets
_FLOOD = 1200  # silent connections: more than a process may have files if nobody has raised that
_PATIENCE = 180  # seconds for a training on a bad line
_RECOVERY = 40.0  # seconds after which a line that is mended must be in use


def cut(bench: Bench, seconds: float) -> Result:
    """All connections are reset and no new one is made for a while."""
    return _while_down(bench, seconds, Relay.cut, "cut")


def silenced(bench: Bench, seconds: float) -> Result:
    """Nothing arrives for a while, and nobody is told."""
    return _while_down(bench, seconds, Relay.silence, "silence")


def forgotten(bench: Bench, seconds: float) -> Result:
    """Old connections stay silent for ever, and nobody is told; new ones pass. Keepalive must notice."""
    return _while_down(bench, seconds, Relay.forget, "silence of old connections")


def _while_down(bench: Bench, seconds: float, act: object, what: str) -> Result:
    port = free_port()
    with Relay(port) as relay:
        training = bench.fresh(port=port, connect=relay.port)
        _begin(bench, training)
        act(relay)  # type: ignore[operator]
        down = time.monotonic()
        waited: set[str] = set()
        forgetful = act is Relay.forget
        while time.monotonic() < down + seconds:
            waited |= {name for name in PARTIES if _state(training, name) == "waiting"}
            time.sleep(0.1)
        before = len(_answers(training))
        relay.mend()
        mended = down if forgetful else time.monotonic()
        training.wait_for(
            "the first turn after the line was mended",
            lambda: len(_answers(training)) > before or all(process.over for process in training.running.values()),
            _RECOVERY + seconds,
        )
        later = [moment for moment in _answers(training) if moment > down + 0.5]
        recovery = later[0] - mended if later else 0.0
        check(waited == set(PARTIES), f"during the {what} only {', '.join(waited) or 'nobody'} said that it waits")
        bench.done(training)
        figures = {"down_s": seconds, "recovery_s": recovery, "connections": relay.connections}
    return Result(f"{what} of {seconds:g} s: both said that they wait; first turn {recovery:.2f} s after", figures)


def delayed(bench: Bench) -> Result:
    """Every byte takes 40 ms longer in each direction."""
    port = free_port()
    with Relay(port, delay=_DELAY) as relay:
        training = bench.halfway(port=port, connect=relay.port)
        began = time.monotonic()
        bench.done(training)
        took = time.monotonic() - began
    turns = bench.size.turns - bench.size.turns // 2
    return Result(f"{1000 * _DELAY:.0f} ms each way: {turns / took:.1f} turns/s", {"turns_per_s": turns / took})


def broken_again_and_again(bench: Bench) -> Result:
    """Connections break and stall at random moments until the training is nearly over."""
    draw, port = random.Random(bench.seed), free_port()
    with Relay(port) as relay:
        training = bench.fresh(port=port, connect=relay.port)
        for name in PARTIES:
            training.start(name)
        resets = stalls = 0
        until = time.monotonic() + _PATIENCE
        while len(_answers(training)) < 0.9 * bench.size.turns:
            check(time.monotonic() < until, f"the training did not end in {_PATIENCE} s")
            for name, process in training.running.items():
                check(not process.over, f"{name} ended: {training.complaint(process)}")
            if draw.random() < 0.5:
                relay.reset_one(draw)
                resets += 1
            else:
                relay.silence()
                time.sleep(draw.uniform(0.02, 0.2))
                relay.mend()
                stalls += 1
            time.sleep(draw.uniform(0.05, 0.4))
        bench.done(training)
        figures = {"resets": resets, "stalls": stalls, "connections": relay.connections}
    return Result(f"{resets} resets and {stalls} stalls, {relay.connections} connections", figures)


def flooded(bench: Bench) -> Result:
    """Silent connections without a certificate, renewed until the end; the feature party comes in the midst of them."""
    if allow_files(4 * _FLOOD) < 4 * _FLOOD:
        return Result("left out: the system allows too few open files (`ulimit -Hn`)", {"left_out": True})
    training = bench.halfway()
    label = training.start(LABEL)
    with Flood(training.port, _FLOOD) as flood:
        training.wait_for("the flood", lambda: flood.stands and _open_files(label.pid) >= _FLOOD)
        began, before = time.monotonic(), len(_answers(training))
        training.start(FEATURES)
        training.wait_for("the first turn in the flood", lambda: len(_answers(training)) > before)
        joined = time.monotonic() - began
        check(flood.stands and _open_files(label.pid) >= _FLOOD, "the flood did not stand when the first turn was done")
        bench.done(training)
        figures = {"connections": _FLOOD, "made": flood.made, "first_turn_s": joined}
    return Result(f"{_FLOOD} silent connections at a time: first turn {joined:.2f} s after the start", figures)


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def lossy(bench: Bench) -> Result:
    """Packets are lost between two network namespaces; TCP sends them again, and nothing of that is seen above it."""
    if not PacketLine.possible():
        return Result("left out: namespaces of the network need root and `ip`", {"left_out": True})
    training = bench.halfway()
    for name in PARTIES:
        training.edit(name, r"127\.0\.0\.1", ADDRESSES[LABEL])
    began = time.monotonic()
    with PacketLine(loss=_LOSS, delay=_DELAY / 4, seed=bench.seed) as line, ExitStack() as stack:
        running = []
        for name in PARTIES:
            options = ["--folder", str(training.party(name)), "--events", str(training.events(name))]
            running.append(subprocess.Popen([*line.inside(name), sys.executable, *WORKER, *options], cwd=ROOT))
            stack.callback(running[-1].wait)
            stack.callback(running[-1].kill)
        codes = [process.wait(_PATIENCE) for process in running]
    check(codes == [0, 0], f"the parties ended with {codes}")
    bench.same(training)
    bench.discard(training)
    share, took = line.lost / (line.lost + line.passed), time.monotonic() - began
    told = f"{line.lost} of {line.lost + line.passed} packets lost, {1000 * _DELAY / 4:.0f} ms each way; {took:.0f} s"
    return Result(told, {"lost": line.lost, "share": share})


def _begin(bench: Bench, training: Training) -> None:
    for name in PARTIES:
        training.start(name)
    early = bench.size.turns // 6
    training.wait_for(f"turn {early}", lambda: len(_answers(training)) >= early, 60)


def _answers(training: Training) -> list[float]:
    """When each answer was sent."""
    return [event["time"] for event in read_events(training.events(LABEL)) if event["event"] == "answer"]


def _state(training: Training, name: str) -> str:
    state: str = json.loads((training.run_folder(name) / "status.json").read_text())["state"]
    return state
