"""One of several processes of a party that trains, as torchrun starts them, watched from within.

    torchrun --standalone --nproc-per-node 2 one_of_several.py PARTY NOTES [KILLED]

Each writes into the folder NOTES what it did: the first one how far it was, the others what they opened to write in the
party's folder and whom they connected to. KILLED is a process that kills itself, in its first life, once a network has
been fitted for an epoch.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from tacit.company.train import train_one_shot

PARTY, NOTES = (Path(word) for word in (*sys.argv[1:], "", "")[:2])
RANK, LIFE = (int(os.environ.get(name, 0)) for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))


def note(words):
    """Add a line to this life's notes."""
    with (NOTES / f"process {RANK} life {LIFE}").open("a") as file:
        file.write(words + "\n")


def watched(event, arguments):
    """What a helper has no business with."""
    changes = event in ("os.mkdir", "os.rename", "os.remove", "os.truncate", "shutil.rmtree")
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        changes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if changes and Path(os.fsdecode(arguments[0])).is_relative_to(PARTY):
        note(f"{event} {arguments}")
    if event in ("socket.connect", "socket.bind"):
        note(f"{event} {arguments[1:]}")


def die_in_the_middle():
    """Wait for the first network's file, then be killed."""
    while not list(PARTY.glob("runs/*/learning/*/network 0.safetensors")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if RANK:
        sys.addaudithook(watched)
    if sys.argv[3:] == [str(RANK)] and not LIFE:
        threading.Thread(target=die_in_the_middle, daemon=True).start()
    train_one_shot(PARTY, progress=lambda what, done, total: note(f"{what} {done} {total}"))
