"""A running `tarn serve` for tests, on a port that was free."""

import http.client
import json
import signal
import subprocess
import threading

from conftest import TARN


class Server:
    def __init__(self, model, *words):
        self.process = subprocess.Popen(
            [
                TARN,
                "serve",
                str(model),
                *map(str, ["--port", 0] if "--port" not in words else []),
                *map(str, words),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("listens"):
                self.port = int(line.rsplit(":", 1)[1])
                break
        else:
            raise RuntimeError("".join(self.lines))
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()

    def ask(self, method, path, body=None, headers=None):
        """Status and answer, as JSON where it is."""
        connection = http.client.HTTPConnection("localhost", self.port)
        data = None if body is None else json.dumps(body)
        given = {"Content-Type": "application/json"} if data else {}
        connection.request(method, path, data, given | (headers or {}))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        kind = answer.headers.get("Content-Type", "")
        return answer.status, json.loads(text) if kind == "application/json" else text

    def post(self, path, wanted=200, **body):
        status, answer = self.ask("POST", path, body)
        assert status == wanted, answer
        return answer

    def events(self, path, **body):
        """The events of a stream, without the last, [DONE]."""
        status, text = self.ask("POST", path, body | {"stream": True})
        assert status == 200, text
        lines = [line for line in text.split("\n\n") if line]
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait()
        self.reader.join()
        return self.process.returncode
