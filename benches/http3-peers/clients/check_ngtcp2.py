#!/usr/bin/env python3
"""Makes requests with ngtcp2's client, `gtlsclient` (Debian: ngtcp2-client), whose QUIC, HTTP/3 and TLS are ngtcp2, nghttp3 and GnuTLS."""

import os
import re
import subprocess
import tempfile

from checks import FILE_BYTES, LARGE_BYTES, expect, run

TIMEOUT = 60


class Answer:
    """The statuses of all responses in their order, and the octets of their bodies together."""

    def __init__(self, output):
        self.statuses = [int(status) for status in re.findall(r"\[:status: (\d+)\]", output)]
        self.lengths = sum(int(length) for length in re.findall(r"http: stream \S+ body (\d+) bytes", output))
        # Bodies are dumped as `hexdump -C` writes them.
        lines = re.findall(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} +)+)\|", output, re.M)
        self.text = bytes.fromhex("".join(lines)).decode(errors="replace")
        self.output = output


def client(server, *options, paths, started=None):
    """Runs the client to its end. `started` is called with the process."""
    command = ["gtlsclient", "--no-quic-dump", "--exit-on-all-streams-close", *options, "localhost", str(server.port)]
    command += [server.url(path) for path in paths]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            if started:
                started(process)
            status = process.wait(TIMEOUT)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        answer = Answer(output.read())
    expect(status, 0)
    return answer


def methods(server):
    answer = client(server, paths=["/5k"])
    expect((answer.statuses, answer.lengths), ([200], FILE_BYTES))
    answer = client(server, "-m", "HEAD", paths=["/5k"])
    expect((answer.statuses, answer.lengths), ([200], 0))
    expect(client(server, paths=["/none"]).statuses, [404])


def post(server):
    answer = client(server, "-m", "POST", "-d", "html/1m", paths=["/length"])
    expect((answer.statuses, answer.text), ([200], str(LARGE_BYTES)))


def parallel(server):
    answer = client(server, "-n", "20", paths=["/5k"])
    expect((answer.statuses, answer.lengths), ([200] * 20, 20 * FILE_BYTES))
    answer = client(server, "-n", "200", paths=["/5k"])
    expect((answer.statuses, answer.lengths), ([200] * 200, 200 * FILE_BYTES))


def ciphers(server):
    for cipher in ["AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"]:
        names = f"NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+{cipher}"
        expect(client(server, f"--ciphers={names}", paths=["/5k"]).statuses, [200])


def versions(server):
    # A draft of version 2: the client gets a Version Negotiation packet, and takes version 1.
    answer = client(server, "--version=v2draft", "--preferred-versions=v2draft,v1", paths=["/5k"])
    expect("Client selected version 0x1" in answer.output, True)
    expect((answer.statuses, answer.lengths), ([200], FILE_BYTES))


def early(server):
    with tempfile.TemporaryDirectory() as folder:
        state = [f"--session-file={folder}/session", f"--tp-file={folder}/parameters"]
        # The session ticket may follow the response: the second stream, a slow one, waits for it.
        answer = client(server, *state, paths=["/early", "/slow"])
        expect(answer.text.startswith("early:"), True)
        answer = client(server, *state, paths=["/early"])
        expect(answer.text, "early:1")


def download(server, path, *options, started=None):
    with tempfile.TemporaryDirectory() as folder:
        answer = client(
            server, "--no-http-dump", f"--download={folder}", *options, paths=[path], started=started
        )
        expect((answer.statuses, os.path.getsize(folder + path)), ([200], LARGE_BYTES))
    return answer


def keys(server):
    for _ in range(10):
        answer = client(server, "--key-update=100ms", paths=["/slow"])
        # The client gives up when the server has just updated its keys.
        if "ngtcp2_conn_initiate_key_update: ERR" not in answer.output:
            break
    expect((answer.statuses, answer.lengths), ([200], LARGE_BYTES))
    expect(bool(re.search(r"pkt rx .* k=1", answer.output)), True)


def migration(server):
    answer = download(server, "/slow", "--change-local-addr=200ms")
    expect("Local address is now" in answer.output, True)


def losses(server):
    download(server, "/1m", "--tx-loss=0.1", "--rx-loss=0.1")


def reloads(server):
    def reload(process):
        for _ in range(5):
            server.reload()
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError("the download has ended before the last reload")

    download(server, "/slow", started=reload)


run(
    __doc__,
    [
        ("GET, HEAD, 404", methods),
        ("POST of 1 MB", post),
        ("20 and 200 requests", parallel),
        ("three ciphers", ciphers),
        ("version negotiation", versions),
        ("0-RTT", early),
        ("key update", keys),
        ("migration to another port", migration),
        ("download with a tenth of the packets lost", losses),
        ("download during reloads", reloads),
    ],
)
