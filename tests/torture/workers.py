"""A party as a process that can be ended at a named point of a step; and a parent that forks one for each start.

The parent has imported everything and used nothing: no threads of torch run in it, so its children begin as a
new process would, without the seconds that imports take. What happens in a party is added to a file line by line, each
with a single write, so that it is there whenever the process ends.
"""

from __future__ import annotations

import argparse
import builtins
import gc
import importlib
import json
import os
import re
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import errors
from tacit.align import sources
from tacit.company.align import align
from tacit.company.folder import Folder
from tacit.contracts import Message
from tacit.errors import RefusedError, TacitError
from tacit.exchange import messages as exchange
from tacit.exchange.train import train_one_shot
from tacit.serve import job
from tacit.serve.conversation import Telling
from tacit.serve.predict import predict
from tacit.serve.serve import serve as serve_run
from tacit.split import run as split_run
from tacit.split.exactly_once import CONFIRMED
from tacit.split.train import train
from tacit.wire.line import DeskLine
from tests.torture.echoing import echo
from tests.torture.intruder import intrude

__all__ = ["FAILED", "SECRET", "Start", "main", "serve", "state_of", "work"]

SECRET = "the label of row 7 is 1"
"""What a call says that was told to fail."""

FAILED = 4
"""How a process ends that raised one of our own errors; the last event says which."""

_FILES = 1024  # that may be open, as on most machines; a party raises it where it needs more
_SETTLED = "answer written"  # the first of these after a start is the first turn that is new


@dataclass(frozen=True)
class Start:
    """What a process is to do.

    Attributes:
        folder: of the party.
        events: the file that is told what happens.
        verb: "align", "train", "predict", "serve", or to come with the party's certificate and behave badly: "intrude"
            into a training, or "echo" products in an alignment.
        kill_at: the point at which the process ends itself with SIGKILL; "" for none.
        count: at which pass of that point.
        version: what the code is to call its own version; "" for what it is.
        how: what an intruder does; or the file to be scored and that of its scores, one a line, and how to match.
        chunk: bytes of an embedding that are sent at a time in one exchange, or its rows for a prediction, which then
            scores 256 of them at a time; 0 for as many as always.
        fails: "MODULE:NAME NUMBER ERROR", a call that fails, which one of them, and the name of what it raises, with
            `SECRET` in its words; "" for none. In the place of a call, "reads" is each reading of the party's table,
            its file of facts, a book or what is counted outside its folder, and of what a run keeps of labels.
    """

    folder: str
    events: str
    verb: str = "train"
    kill_at: str = ""
    count: int = 1
    version: str = ""
    how: str = ""
    chunk: int = 0
    fails: str = ""


class _Events:
    """A file that is only added to."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, event: str, **details: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.monotonic(), **details})
        os.write(self._fd, line.encode() + b"\n")


class _Points:
    """Told of each point that a turn passes; ends the process where it was ordered."""

    def __init__(self, start: Start, events: _Events) -> None:
        self._start = start
        self._events = events
        self._left = start.count
        self._settled = False

    def __call__(self, point: str) -> None:
        if not self._settled and point == _SETTLED:
            self._settled = True
            self._events.tell("settled")
        if point == self._start.kill_at:
            self._left -= 1
            if not self._left:
                self._events.tell("killed", point=point)
                os.kill(os.getpid(), signal.SIGKILL)


def state_of(folder: str | Path) -> str:
    """Where a party's processes count what left: beside its folder, as if each party had a machine of its own."""
    return f"{folder}-state"


def work(start: Start) -> int:
    """Be the party; the exit code."""
    events = _Events(start.events)
    events.tell("started", verb=start.verb)
    os.environ["TACIT_STATE"] = state_of(start.folder)
    if start.fails.startswith("reads"):
        _let_reading_fail(start, events)
    elif start.fails:
        _let_fail(*start.fails.split())
    if start.version:
        split_run.__version__ = start.version  # type: ignore[attr-defined]
    try:
        if start.verb == "align":
            align(start.folder)
        elif start.verb == "train":
            _watch_answers(events)
            exchange.CHUNK = start.chunk or exchange.CHUNK
            way = train_one_shot if Folder(start.folder).terms.mode == "one_shot" else train
            way(start.folder, trace=_Points(start, events))
        elif start.verb == "predict":
            _predict(start, Telling(trace=_Points(start, events)))
        elif start.verb == "serve":
            _serve(start, events)
        else:
            found = echo(start.folder) if start.verb == "echo" else intrude(start.folder, start.how)
            events.tell("intruded", found=found)
    except TacitError as error:
        field = error.field if isinstance(error, RefusedError) else ""
        events.tell("failed", error=type(error).__name__, field=field, message=str(error))
        return FAILED
    events.tell("ended")
    return 0


_OWN = re.compile(r"/(data\.|facts\.sqlite|coins/|embeddings/)|/runs/\w+/(inputs/labels|transcript/|gate)|-state/")


def _let_reading_fail(start: Start, events: _Events) -> None:
    """Have a reading of what belongs to the party alone fail; those before it, and itself, are told of."""
    _, number, error = start.fails.split()
    made, left, real = _error(error), [int(number)], sources._open

    def look(path: object) -> None:
        there = str(path).startswith(start.folder) and _OWN.search(str(path).removeprefix(start.folder))
        if there and left[0] > 0:
            left[0] -= 1
            events.tell("read", path=str(path))
            if not left[0]:
                raise made(SECRET)

    def opened(source: Any, *more: Any) -> Any:  # by polars, of which Python hears nothing
        look(source)
        return real(source, *more)

    sources._open = opened  # type: ignore[assignment]
    sys.addaudithook(lambda event, args: look(args[0]) if event in ("open", "sqlite3.connect") else None)


def _error(name: str) -> Any:
    return getattr(errors, name, None) or getattr(builtins, name)


def _let_fail(where: str, number: str, error: str) -> None:
    """Have a call fail."""
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *inner, name = path.split(".")
    for part in inner:
        owner = getattr(owner, part)
    real, made, left = getattr(owner, name), _error(error), [int(number)]

    def fails(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise made(SECRET)
        return real(*args, **more)

    setattr(owner, name, fails)


def _predict(start: Start, telling: Telling) -> None:
    match, *files = start.how.split("\n")
    if start.chunk:
        job.ROWS = start.chunk  # type: ignore[attr-defined]
        sources._SMALLEST = sources._LARGEST = 256
    predict(start.folder, *map(Path, files), match="keyed" if match == "keyed" else "private", telling=telling)


def _serve(start: Start, events: _Events) -> None:
    """Serve at any free port, until a SIGTERM."""
    serve_run(
        start.folder, http="127.0.0.1:0", log=events.tell, told=lambda address: events.tell("http", address=address)
    )


def _watch_answers(events: _Events) -> None:
    """Write every answer of the label party down before it is handed to the network."""
    inner = DeskLine.send

    def send(line: DeskLine, message: Message) -> None:
        if message is not CONFIRMED:  # a word of farewell, not an answer
            key = f"{line.peer} {message.kind} {message.step}"
            events.tell("answer", key=key, fingerprint=message.fingerprint.hex())
        inner(line, message)

    DeskLine.send = send  # type: ignore[assignment, method-assign]


def serve() -> None:
    """Fork a child or kill one, as the lines say that come in, and tell when one has ended; until there are no more."""
    importlib.import_module("torch._dynamo")  # torch imports it by itself when the first model is made: two seconds
    gc.freeze()
    ready, wake = os.pipe()
    for end in (ready, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(ready, selectors.EVENT_READ)
        rest = b""
        while True:
            for key, _ in selector.select():
                if key.fd == ready:
                    os.read(ready, 4096)
                    _tell_ended(running)
                    continue
                data = os.read(key.fd, 65536)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _obey(json.loads(line), running)


def _obey(order: dict[str, Any], running: dict[int, int]) -> None:
    """Fork a child, or kill one; only who waits for a process knows that its number is not another one's by now."""
    number = order.pop("number")
    if "kill" in order:
        for pid in [each for each, known in running.items() if known == number]:
            os.kill(pid, signal.SIGKILL)
        return
    pid = os.fork()
    if not pid:
        _become(order.pop("log"))
        code = 1  # of a traceback, which is in the log
        try:
            code = work(Start(**order))
        finally:
            if code == 1:
                traceback.print_exc()
            os._exit(code)  # as forks end: what the parent has imported is not taken down once more in each of them
    running[pid] = number
    _say(number=number, pid=pid)


def _become(log: str) -> None:
    """In a child: what belongs to the parent is let go, what is said goes to a file, and limits are the usual ones."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, *files), files[1]))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for old, new in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(old, new)


def _tell_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if pid in running:
            _say(number=running.pop(pid), code=os.waitstatus_to_exitcode(status))


def _say(**what: int) -> None:
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def main(words: Sequence[str] | None = None) -> int:
    """`python -m tests.torture.workers`: one party by its options, or, with --serve, one for each line of stdin."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.workers", description=main.__doc__)
    parser.add_argument("--serve", action="store_true", help="fork a process for each line of stdin")
    parser.add_argument("--folder", help="of the party")
    parser.add_argument("--events", help="the file that is told what happens (default: events.jsonl in the folder)")
    parser.add_argument("--kill-at", default="", metavar="POINT", help="end with SIGKILL at this point of a turn")
    parser.add_argument("--count", type=int, default=1, help="at which pass of it")
    options = parser.parse_args(words)
    if options.serve:
        serve()
        return 0
    if options.folder is None:
        parser.error("--folder or --serve is needed")
    events = options.events or str(Path(options.folder) / "events.jsonl")
    return work(Start(options.folder, events, kill_at=options.kill_at, count=options.count))


if __name__ == "__main__":
    sys.exit(main())
