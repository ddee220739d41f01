"""tarn's server and llama.cpp's, started as programs, and clients of both."""

import http.client
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import native

# The path of the program llama-server.
LLAMA_SERVER = "TARN_LLAMA_SERVER"


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A running server. words: the program and its options, without the port."""

    def __init__(self, words, log):
        self.port = _free_port()
        self._log = open(log, "wb")
        self.process = subprocess.Popen(
            [*map(str, words), "--port", str(self.port)], stdout=self._log, stderr=self._log
        )
        deadline = time.monotonic() + 120
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{words[0]}: {pathlib.Path(log).read_text()[-2000:]}")
            time.sleep(0.05)

    def _is_up(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def close(self):
        self.process.terminate()
        self.process.wait()
        self._log.close()

    def _request(self, path, document):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps(document)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        return answer

    def complete(self, tokens, count, **more):
        """Ids of a greedy text after a prompt of ids, and what the server says of its time."""
        found = json.loads(self._request("/completion", _document(tokens, count, **more)).read())
        one = found["choices"][0] if "choices" in found else found
        return one["tokens"], found["timings"]

    def stream(self, tokens, count, **more):
        """Seconds to each event of a stream."""
        start = time.perf_counter()
        answer = self._request("/completion", _document(tokens, count, stream=True, **more))
        return [time.perf_counter() - start for line in answer if line.startswith(b"data: ")]

    def model_seconds(self):
        """tarn's: what the calls of the model have taken so far."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        for line in connection.getresponse().read().decode().splitlines():
            if line.startswith("tarn_model_seconds_total"):
                return float(line.split()[-1])
        raise RuntimeError("/metrics: want tarn_model_seconds_total, got none")

    def together(self, prompts, count):
        """Seconds in which all prompts were answered, each by a client of its own."""
        clients = [
            threading.Thread(target=self.complete, args=(one, count), kwargs={"cache": False})
            for one in prompts
        ]
        start = time.perf_counter()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return time.perf_counter() - start


def _document(tokens, count, cache=True, **more):
    return {
        "prompt": list(tokens),
        "n_predict": count,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": cache,
        "return_tokens": True,
        **more,
    }


def tarn(file, threads, log, *words):
    build = pathlib.Path(os.environ.get("TARN_BUILD", native.ROOT / "build"))
    program = [
        build / "tarn",
        "serve",
        file,
        "--threads",
        threads,
        "--slots",
        64,
        "--no-page",
        "--metrics",
    ]
    return Server([*program, *words], log)


def llama(file, threads, slots, tokens, log):
    """tokens: of a slot's context."""
    program = [os.environ[LLAMA_SERVER], "-m", file, "-t", threads, "-tb", threads]
    program += ["-np", slots, "-c", slots * tokens, "--no-webui", "-fit", "off"]
    return Server(program, log)
