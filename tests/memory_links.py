"""The two ends of a link between two threads, as tests speak over it."""

from dataclasses import replace

from tacit.wire.network_link import MemoryLink, Pipe

ROOM = 64


class CopyLink:
    """Without the codec: messages are handed over as copies."""

    def __init__(self, peer, outgoing, incoming):
        self.peer, self._outgoing, self._incoming = peer, outgoing, incoming

    def send(self, message):
        self._outgoing.put(replace(message, payload=message.payload.detach().clone()))

    def recv(self, timeout=None):
        return self._incoming.get(timeout)

    def close(self):
        self._outgoing.end(f"the link to {self.peer} is closed")
        self._incoming.cut(f"the link to {self.peer} is closed")


def links(limits=None, *, names=("left", "right")):
    """The two ends; with limits messages go through the codec as bytes, as over a network, without as copies."""
    there, back = Pipe(ROOM), Pipe(ROOM)
    if limits is None:
        return CopyLink(names[1], there, back), CopyLink(names[0], back, there)
    return MemoryLink(names[1], limits, there, back), MemoryLink(names[0], limits, back, there)
