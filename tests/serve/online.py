"""Services in processes of their own, and what is asked of them."""

import http.client
import json
import os
import signal
import time
import tomllib

from tests.torture.workers import Start

PATIENCE = 120


def settings(world, name, **more):
    """Write the [serve] of a party, which is the last part of its settings."""
    path = world / name / "party.toml"
    before, _, serve = path.read_text().partition("\n[serve]\n")
    said = tomllib.loads(serve) | more
    lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
    path.write_text("\n".join([before, "[serve]", *lines, ""]))


class Service:
    """A party that serves, in a process."""

    def __init__(self, processes, folder, events):
        self.process = processes.start(Start(str(folder), str(events), "serve"))

    def heard(self, event, count=1, **details):
        """Wait until the service has logged something so often; the last of it."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = [one for one in self.process.events if one["event"] == event and details.items() <= one.items()]
            if len(found) >= count:
                return found[count - 1]
            assert not self.process.over, self.process.events
            time.sleep(0.02)
        raise AssertionError((event, details, self.process.events))

    @property
    def port(self):
        return int(self.heard("http")["address"].rpartition(":")[2])

    def request(self, method, path, body=None, headers=None):
        """Status, headers, and what was answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def ask(self, rows):
        """Status and answer of /score."""
        body = json.dumps({"rows": rows})
        status, _, said = self.request("POST", "/score", body, {"Content-Type": "application/json"})
        return status, json.loads(said)

    def scores(self, rows):
        status, said = self.ask(rows)
        assert status == 200, said
        return said

    def metrics(self):
        lines = self.request("GET", "/metrics")[2].decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def signal(self, number):
        os.kill(self.process.pid, number)

    def stop(self):
        """End it in the way that services are ended; its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)
