"""A proxy before an S3 server, for tests: it spoils some requests, counts, and can be told what to do with each.

It also mends moto, which ends the answer to CompleteMultipartUpload with the wrong name.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Spoil = Callable[[str, str], str]
"""Of a request's method and path: "" or what to do instead of answering well."""

KINDS = ("500", "503", "reset", "timeout", "half")


def sometimes(share: float, seed: int = 0) -> Spoil:
    """Spoils this share of the requests, in all the ways there are."""
    generator, lock = random.Random(seed), threading.Lock()

    def choose(method: str, path: str) -> str:
        with lock:
            return generator.choice(KINDS) if generator.random() < share else ""

    return choose


class Proxy:
    """Forwards to `server`; `spoil` may be replaced at any time."""

    def __init__(self, server: str, spoil: Spoil = lambda method, path: "") -> None:
        self.server = urlsplit(server)
        self.spoil = spoil
        self.spoiled = 0
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and the header If-None-Match of each."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def handle_one(self) -> None:
                proxy._answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, *words: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = _body_of(request)
        kind = self.spoil(request.command, request.path)
        self.requests.append((request.command, request.path, request.headers.get("If-None-Match", "")))
        self.spoiled += bool(kind)
        if kind.isdigit():
            return _send(request, int(kind), {}, b"")
        if kind in ("reset", "timeout"):
            if kind == "timeout":
                time.sleep(4)  # longer than clients wait for a byte
            request.close_connection = True
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return request.connection.close()
        status, headers, answer = self._forward(request, body)
        if kind == "half":
            _send(request, status, headers, answer, len(answer) // 2)
        else:
            _send(request, status, headers, answer)
        return None

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection(self.server.hostname or "", self.server.port, timeout=60)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "expect")
        }
        headers["Content-Length"] = str(len(body))
        upstream.request(request.command, request.path, body, headers)
        got = upstream.getresponse()
        answer = got.read()
        upstream.close()
        answer = answer.replace(b"CompleteMultipartUploadResponse", b"CompleteMultipartUploadResult")
        kept = {
            name: value for name, value in got.getheaders() if name.lower() not in ("connection", "transfer-encoding")
        }
        if request.command != "HEAD":
            kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
        return got.status, kept, answer


def _body_of(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if request.headers.get("Transfer-Encoding", "").lower() == "chunked":
        body = b""
        while size := int(request.rfile.readline().split(b";")[0], 16):
            body += request.rfile.read(size)
            request.rfile.readline()
        while request.rfile.readline().strip():
            pass
        return body
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def _send(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes, only: int | None = None
) -> None:
    """With `only`, the connection ends after that many bytes of the body."""
    try:
        request.send_response_only(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if not any(name.lower() == "content-length" for name in headers):
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body if only is None else body[:only])
        if only is not None:
            request.close_connection = True
    except OSError:
        request.close_connection = True
