"""The label party's door while it serves: feature parties come and go, each with a thread that hears it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tacit.company.folder import Folder
from tacit.company.meeting import said_hello, server
from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.serve.conversation import Telling, check_half, heard, label_limits, purpose
from tacit.serve.halves import Scorer
from tacit.serve.log import Log
from tacit.serve.partners import Partner
from tacit.wire.line import last_words

_SILENT = 30.0  # seconds in which a partner must have answered, or its link ends


class Door:
    """Lets feature parties in that have the same model."""

    def __init__(self, folder: Folder, where: Path, scorer: Scorer, partners: Mapping[str, Partner], log: Log) -> None:
        self._folder, self._where, self._partners, self._log = folder, where, partners, log
        self._hello = purpose("serve", scorer.versions)
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._pinning = threading.Lock()
        self._server = server(folder, folder.terms, label_limits(scorer.widths))
        self._thread = threading.Thread(target=self._open, name="tacit-door", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        with self._server as door:
            while not self._over.is_set():
                link = door.accept(0.2)
                if link is not None:
                    threading.Thread(target=self._talk, args=(link,), name=f"tacit-{link.peer}", daemon=True).start()

    def close(self) -> None:
        """Nobody is let in any more, and all links end."""
        self._over.set()
        self._thread.join()

    def _talk(self, link: Link) -> None:
        """Hear a partner until its link is over."""
        partner, reason = self._partners.get(link.peer), "it has closed the link"
        try:
            if partner is None:
                raise RefusedError("party", f"{link.peer} has no part in this run: compare contract.toml")
            self._greet(link)
            self._loop.call_soon_threadsafe(self._attach, partner, link)
            while True:
                message = link.recv(1.0)
                if partner.oldest > _SILENT:  # also where other answers come all the time
                    raise LinkError(f"{link.peer} does not answer")
                if message is None:
                    continue
                if message.kind == "refusal" and not message.step:
                    raise LinkError("it has refused to go on")
                self._loop.call_soon_threadsafe(self._take, partner, link, message)
        except RefusedError as error:
            reason = str(error)
            self._log("link refused", partner=link.peer, field=error.field, reason=reason)
            last_words(link, error)
        except (LinkError, ProtocolError) as error:
            reason = str(error)
            link.close()
        finally:
            with suppress(RuntimeError):  # the loop is over, too
                self._loop.call_soon_threadsafe(self._gone, link, reason)

    def _gone(self, link: Link, reason: str) -> None:
        if link.peer in self._partners:
            self._partners[link.peer].detach(link, reason)

    def _greet(self, link: Link) -> None:
        said_hello(link, self._folder, self._folder.terms, self._hello)
        said = heard(link, "hello", 1, {"half": str}, Telling(), "it does not say which half it has")
        with self._pinning:
            check_half(self._where, link.peer, said["half"])

    def _attach(self, partner: Partner, link: Link) -> None:
        old = partner.attach(link)
        if old is not None:
            threading.Thread(target=old.close, daemon=True).start()  # it may wait for its last words to be taken

    def _take(self, partner: Partner, link: Link, message: Message) -> None:
        """In the thread of the event loop."""
        try:
            partner.take(link, message)
        except RefusedError as error:
            self._log("link refused", partner=link.peer, field=error.field, reason=str(error))
            partner.detach(link, str(error))
            threading.Thread(target=last_words, args=(link, error), daemon=True).start()
