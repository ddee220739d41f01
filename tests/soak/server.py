"""The server as a process: started, killed, ended, and what the system says of it."""

from __future__ import annotations

import http.client
import os
import pathlib
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    seconds: float
    memory_mib: float
    files: int
    parked: int  # sessions


class Server:
    """`tarn serve` on one port, which it keeps over restarts."""

    def __init__(self, program: str | os.PathLike, models: Sequence[str], words: Sequence[str]):
        self._words = [str(program), "serve", *models, *words]
        self.port = 0
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Returns once it listens."""
        self.starts += 1
        self._process = subprocess.Popen(
            [*self._words, "--port", str(self.port)], stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if line.startswith("listens"):
                self.port = int(line.rsplit(":", 1)[1])
                break
        else:
            raise RuntimeError("".join(self.log))
        threading.Thread(target=lambda: list(self._process.stderr or ()), daemon=True).start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Its exit code after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)

    def sample(self, seconds: float) -> Sample:
        process = pathlib.Path("/proc") / str(self._process.pid)
        found = re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
        assert found is not None
        files = len(os.listdir(process / "fd"))
        return Sample(seconds, int(found[1]) / 1024, files, self._parked())

    def _parked(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        counts = re.findall(r"^tarn_sessions_parked\{[^}]*\} (\d+)", text, re.M)
        return sum(map(int, counts))
