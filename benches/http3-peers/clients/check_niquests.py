#!/usr/bin/env python3
"""Makes requests over HTTP/3 with niquests (`pip install niquests`), whose QUIC is qh3 (aioquic's core with rustls and AWS-LC)."""

import io
import warnings

import niquests

from checks import FILE_BYTES, LARGE_BYTES, expect, run

TIMEOUT = 30

# The certificate is self-signed.
warnings.simplefilter("ignore")


class Client:
    """A session that knows the server's HTTP/3."""

    def __init__(self, server, **options):
        self.server = server
        self.session = niquests.Session(disable_http1=True, disable_http2=True, **options)
        self.session.quic_cache_layer.add_domain("localhost", server.port)

    def ask(self, method, path, **options):
        response = self.session.request(method, self.server.url(path), verify=False, timeout=TIMEOUT, **options)
        if not self.session.multiplexed:
            expect(response.http_version, 30)
        return response

    def get(self, path, **options):
        return self.ask("GET", path, **options)


def methods(server):
    client = Client(server)
    answer = client.get("/5k")
    expect((answer.status_code, len(answer.content)), (200, FILE_BYTES))
    answer = client.ask("HEAD", "/5k")
    expect((answer.status_code, answer.headers["content-length"], answer.content), (200, str(FILE_BYTES), b""))
    expect(client.get("/none").status_code, 404)


def post(server):
    client = Client(server)
    body = b"b" * (1 << 20)
    expect(client.ask("POST", "/length", data=body).text, str(len(body)))
    # Without a length.
    expect(client.ask("POST", "/length", data=io.BytesIO(body)).text, str(len(body)))
    pieces = (body[at : at + 1000] for at in range(0, len(body), 1000))
    expect(client.ask("POST", "/length", data=pieces).text, str(len(body)))


def field(server):
    # qh3's encoder fails at 6,000 octets.
    value = "f" * 3000
    expect(Client(server).get("/field", headers={"x-field": value}).text, value)


def parallel(server):
    client = Client(server, multiplexed=True)
    answers = [client.get("/5k") for _ in range(20)]
    client.session.gather()
    expect([(answer.http_version, len(answer.content)) for answer in answers], [(30, FILE_BYTES)] * 20)


def cancels(server):
    client = Client(server)
    for _ in range(5):
        answer = client.get("/slow", stream=True)
        next(answer.iter_content(1000))
        answer.close()
    expect(client.get("/5k").status_code, 200)


def reloads(server):
    client = Client(server)
    before = client.get("/who").text
    answer = client.get("/slow", stream=True)
    total = 0
    reloads = 0
    for piece in answer.iter_content(10_000):
        total += len(piece)
        if total // 200_000 > reloads:
            reloads += 1
            server.reload()
    expect((total, reloads), (LARGE_BYTES, 5))
    expect(client.get("/who").text, before)


run(
    __doc__,
    [
        ("GET, HEAD, 404", methods),
        ("POST of 1 MB", post),
        ("field of 3,000 bytes", field),
        ("20 requests at a time", parallel),
        ("cancelled downloads", cancels),
        ("download during reloads", reloads),
    ],
)
