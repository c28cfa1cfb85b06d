"""A party as a process that can be stopped anywhere: its disk, its thread, its end of a link."""

import os
import sys
import threading
import traceback
from collections import Counter, deque
from dataclasses import replace
from math import inf

from tacit.errors import LinkError
from tacit.split.journal import Journal


class KilledError(BaseException):
    """Stands for kill -9: nothing of ours may catch it."""


class Disk(Journal):
    """A journal whose power may fail."""

    def fail(self, power):
        """What the end of the process does to it; without power, what was not synced is gone as well."""
        path, durable = self._newest.path, self._durable
        self._release()
        if power:
            os.truncate(path, durable)


class Process:
    """A party's process: a thread that runs only when `go` is called, until it pauses or ends."""

    def __init__(self, trial, name):
        self.trial, self.name = trial, name
        self.ready, self.deadline = (lambda: True), inf
        self.over, self.error, self.session, self.exchanges, self.links = False, None, None, {}, []
        self.taken = Counter()  # how many turns the newest request or answer that was taken makes complete, by peer
        self._killed, self._mine, self._yours = False, threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __str__(self):
        return f"{self.name} at turn {self.session and self.session.turn}: over {self.over}, {self.error or 'no error'}"

    def _run(self):
        self._mine.acquire()
        try:
            if not self._killed:
                self.trial.label(self) if self.name == "label" else self.trial.feature(self)
        except KilledError:
            pass
        except Exception as error:
            self.error = error
        self.over = True
        self._yours.release()

    def go(self):
        self._mine.release()
        if not self._yours.acquire(timeout=60):
            where = traceback.format_stack(sys._current_frames()[self._thread.ident])
            raise AssertionError(f"{self.name} hangs: {''.join(where)}")

    def pause(self, ready=lambda: True, seconds=inf):
        """Called by the party: let the others run, until something is ready or so much time has passed."""
        self.ready, self.deadline = ready, self.trial.now + seconds
        self._yours.release()
        self._mine.acquire()
        if self._killed:
            raise KilledError

    def kill(self, power=False):
        """End it where it is."""
        if not self.over:
            self._killed = True
            self.go()
        self._thread.join(30)
        assert not self._thread.is_alive()
        for link in self.links:
            link.close()
        if self.session is not None:
            self.session.durable.journal.fail(power)
            self.session.durable.tally.close()


class End:
    """One end of a link: what comes may have been sent by the peer, or put there by the trial."""

    def __init__(self, process, peer):
        self.process, self.peer = process, peer
        self.inbox, self.other, self.open, self.greeted = deque(), None, True, False
        process.links.append(self)

    def send(self, message):
        if not self.open:
            raise LinkError("the link is gone")
        message = replace(message, payload=message.payload.detach().clone())
        self.other.inbox.append((message, "sent"))
        self.process.trial.note_sent(self.process, self.peer, message)

    def recv(self, timeout):
        self.process.pause(lambda: bool(self.inbox) or not self.open, timeout)
        if self.inbox:
            message, how = self.inbox.popleft()
            self.process.trial.note_taken(self, message, how)
            return message
        if not self.open:
            raise LinkError("the link is gone")
        return None

    def close(self):
        self.open = self.other.open = False
