#!/usr/bin/env python3
"""Loads a page of 100 objects over HTTP/1.1, HTTP/2 and HTTP/3, through a link with delay and packet loss.

usage: run.py BINARY OUT_FOLDER [--rounds 15] [--objects 100] [--bytes 20000] [--delay-ms 25] [--losses 0,1,3] [--mbit 50]

Two network namespaces are connected by a pair of TUN devices; this program carries the packets between them, holds each back
(so that kernels without netem will do), drops some at random in both directions, and limits the rate. Needs root, iproute2
and openssl. The server and the client are `tidegate` and `tidegate bench`: HTTP/1.1 with six connections, as browsers have,
HTTP/2 and HTTP/3 with one; HTTP/3 also with quic_congestion_control bbr. A round is one page: new connections, all objects, time until the last byte."""
import argparse, fcntl, heapq, json, os, random, select, shutil, statistics, struct, subprocess, sys, tempfile, threading, time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000
CLONE_NEWNET = 0x40000000
# Packets that wait in the bottleneck's queue, per direction.
QUEUE_MAX = 200
ALLOWED = '/proc/sys/net/ipv4/tcp_allowed_congestion_control'


def sh(*words):
    subprocess.run(words, check=True)


def tun(namespace, address, peer):
    """Opens a TUN device inside a namespace and returns its descriptor."""
    home = os.open('/proc/self/ns/net', os.O_RDONLY)
    there = os.open(f'/run/netns/{namespace}', os.O_RDONLY)
    libc = __import__('ctypes').CDLL(None, use_errno=True)
    if libc.setns(there, CLONE_NEWNET) != 0:
        sys.exit('setns() failed')
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH22x', b'link0', IFF_TUN | IFF_NO_PI))
    libc.setns(home, CLONE_NEWNET)
    sh('ip', '-n', namespace, 'addr', 'add', address, 'peer', peer, 'dev', 'link0')
    sh('ip', '-n', namespace, 'link', 'set', 'link0', 'mtu', '1500', 'up')
    sh('ip', '-n', namespace, 'link', 'set', 'lo', 'up')
    return fd


class Link(threading.Thread):
    """Carries packets both ways."""

    def __init__(self, a, b, delay, mbit, seed):
        super().__init__(daemon=True)
        self.ends, self.delay, self.second_per_byte = (a, b), delay, 8 / (mbit * 1e6)
        self.loss, self.random, self.due, self.free = 0.0, random.Random(seed), [], [0.0, 0.0]
        self.waiting, self.count, self.carried, self.dropped = [0, 0], 0, 0, 0

    def run(self):
        while True:
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                _, _, way, packet = heapq.heappop(self.due)
                self.waiting[way] -= 1
                try:
                    os.write(self.ends[1 - way], packet)
                except OSError:
                    pass
            timeout = max(0.0, self.due[0][0] - time.monotonic()) if self.due else 1.0
            for fd in select.select(self.ends, [], [], timeout)[0]:
                way = self.ends.index(fd)
                for _ in range(64):
                    try:
                        packet = os.read(fd, 65536)
                    except BlockingIOError:
                        break
                    self.take(way, packet)

    def take(self, way, packet):
        now = time.monotonic()
        if self.random.random() < self.loss or self.waiting[way] >= QUEUE_MAX:
            self.dropped += 1
            return
        self.carried += 1
        self.count += 1
        self.waiting[way] += 1
        self.free[way] = max(now, self.free[way]) + len(packet) * self.second_per_byte
        heapq.heappush(self.due, (self.free[way] + self.delay, self.count, way, packet))


CONF = '''daemon off; worker_processes 1; pid tidegate.pid; error_log error.log;
events {{ worker_connections 1000; }}
http {{
    access_log off; http2_max_concurrent_streams 256; http3_max_concurrent_streams 256;
    server {{
        listen 10.99.0.1:443 ssl; listen 10.99.0.1:443 quic; http2 on;
        ssl_certificate c.pem; ssl_certificate_key k.pem;
        root {root};
    }}
    server {{
        listen 10.99.0.1:8443 ssl; listen 10.99.0.1:8443 quic;
        quic_congestion_control bbr;
        ssl_certificate c.pem; ssl_certificate_key k.pem;
        root {root};
    }}
}}
'''
# Name: port and options of the client.
WAYS = {
    'HTTP/1.1 (6 connections)': (443, ['-c', '6']),
    'HTTP/2': (443, ['--http2', '-c', '1', '-m', '{objects}']),
    'HTTP/3': (443, ['--http3', '-c', '1', '-m', '{objects}']),
    'HTTP/3, bbr': (8443, ['--http3', '-c', '1', '-m', '{objects}']),
}


def page(binary, way, options):
    """Loads the page once; returns the report of the client."""
    port, words = WAYS[way]
    words = [w.format(objects=options.objects) for w in words]
    done = subprocess.run(['ip', 'netns', 'exec', 'tg-client', binary, 'bench', f'https://10.99.0.1:{port}/object', '-n', str(options.objects),
                           '-t', '1', '--timeout', '60s', '--connect-timeout', '30s', '--json', '-', *words],
                          capture_output=True, text=True, timeout=180)
    try:
        return json.loads(done.stdout)
    except ValueError:
        sys.exit(f'{done.stdout}\n{done.stderr}')


def measure(options, out):
    work = tempfile.mkdtemp(prefix='page-load-')
    os.chmod(work, 0o755)
    for namespace in ('tg-server', 'tg-client'):
        sh('ip', 'netns', 'add', namespace)
    server = None
    try:
        ends = tun('tg-server', '10.99.0.1', '10.99.0.2'), tun('tg-client', '10.99.0.2', '10.99.0.1')
        link = Link(*ends, options.delay_ms / 1000, options.mbit, options.seed)
        link.start()
        os.mkdir(f'{work}/root')
        os.mkdir(f'{work}/logs')
        os.chmod(f'{work}/root', 0o755)
        open(f'{work}/root/object', 'wb').write(random.Random(1).randbytes(options.bytes))
        sh('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', f'{work}/k.pem',
           '-out', f'{work}/c.pem', '-days', '30', '-subj', '/CN=10.99.0.1')
        open(f'{work}/nginx.conf', 'w').write(CONF.format(root=f'{work}/root'))
        # HTTP/1.1 and HTTP/2 have the kernel's congestion control; cubic is QUIC's here, too. A namespace may choose what the
        # machine allows to all.
        allowed = open(ALLOWED).read().split()
        if options.tcp not in allowed:
            open(ALLOWED, 'w').write(' '.join([*allowed, options.tcp]))
        sh('ip', 'netns', 'exec', 'tg-server', 'sh', '-c', f'echo {options.tcp} > /proc/sys/net/ipv4/tcp_congestion_control')
        server = subprocess.Popen(['ip', 'netns', 'exec', 'tg-server', options.binary, '-p', work, '-c', f'{work}/nginx.conf'])
        time.sleep(1.5)
        results = {}
        for number in range(options.rounds):
            for loss in options.losses:
                link.loss = loss / 100
                for way in WAYS:
                    report = page(options.binary, way, options)
                    results.setdefault((loss, way), []).append(took(report))
            print(f'round {number + 1} of {options.rounds}: ' + ', '.join(
                f'{loss} % {way.split(",")[0]} {results[loss, way][-1]:.2f} s' for loss in options.losses for way in WAYS), flush=True)
        return results
    finally:
        if server:
            server.terminate()
            server.wait()
        for namespace in ('tg-server', 'tg-client'):
            subprocess.run(['ip', 'netns', 'del', namespace])
        shutil.rmtree(work, ignore_errors=True)


def took(report):
    """Seconds from the first connection to the last response."""
    round_ = report['points'][0]['rounds'][0]
    if round_['failures'] or round_['good'] != round_['answers']:
        sys.exit(f"requests failed: {round_['failures']}")
    return float(round_['seconds'])


COLORS = dict(zip(WAYS, ('#8a8f98', '#3b82f6', '#10b981', '#f59e0b')))


def plot(results, options, path):
    losses, height, left, width = options.losses, 230, 60, 720
    top = max(sorted(values)[int(len(values) * 0.9)] for values in results.values()) * 1.15
    y = lambda seconds: 30 + height - height * seconds / top
    text = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 90}" font-family="sans-serif" font-size="13">',
            f'<rect width="{width}" height="{height + 90}" fill="#fff"/>']
    step = next(s for s in (0.1, 0.25, 0.5, 1, 2, 5, 10) if top / s <= 8)
    for tick in range(int(top / step) + 1):
        text.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(tick * step):.1f}" y2="{y(tick * step):.1f}" stroke="#e5e7eb"/>'
                    f'<text x="{left - 8}" y="{y(tick * step) + 4:.1f}" text-anchor="end" fill="#374151">{tick * step:g} s</text>')
    group, labels = (width - left - 20) / len(losses), []
    for g, loss in enumerate(losses):
        for w, way in enumerate(WAYS):
            values = sorted(results[loss, way])
            median, low, high = statistics.median(values), values[int(len(values) * 0.1)], values[int(len(values) * 0.9)]
            x = left + g * group + 20 + w * (group - 40) / len(WAYS)
            bar = (group - 40) / len(WAYS) - 8
            text.append(f'<rect x="{x:.1f}" width="{bar:.1f}" y="{y(median):.1f}" height="{y(0) - y(median):.1f}" fill="{COLORS[way]}"/>'
                        f'<line x1="{x + bar / 2:.1f}" x2="{x + bar / 2:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}" stroke="#111827"/>')
            labels.append(f'<text x="{x + bar / 2:.1f}" y="{min(y(median), y(high)) - 5:.1f}" text-anchor="middle" fill="#111827">{median:.2f}</text>')
        text.append(f'<text x="{left + g * group + group / 2:.1f}" y="{height + 50}" text-anchor="middle" fill="#111827">{loss:g} % packet loss</text>')
    text += labels
    for w, way in enumerate(WAYS):
        text.append(f'<rect x="{left + w * 165 + (w > 0) * 30}" y="{height + 65}" width="12" height="12" fill="{COLORS[way]}"/>'
                    f'<text x="{left + 18 + w * 165 + (w > 0) * 30}" y="{height + 76}" fill="#111827">{way}</text>')
    text.append('</svg>')
    open(path, 'w').write('\n'.join(text) + '\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('binary')
    parser.add_argument('out')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--objects', type=int, default=100)
    parser.add_argument('--bytes', type=int, default=20000)
    parser.add_argument('--delay-ms', type=float, default=25, help='one way; a round trip has twice as much')
    parser.add_argument('--losses', type=lambda text: [float(word) for word in text.split(',')], default=[0.0, 1.0, 3.0])
    parser.add_argument('--mbit', type=float, default=50)
    parser.add_argument('--tcp', default='cubic', help='congestion control of TCP')
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    options.binary = os.path.abspath(options.binary)
    os.makedirs(options.out, exist_ok=True)
    results = measure(options, options.out)
    rows = [{'loss_percent': loss, 'way': way, 'seconds': [round(value, 4) for value in values]} for (loss, way), values in results.items()]
    json.dump({'options': {k: v for k, v in vars(options).items() if k not in ('binary', 'out')}, 'rows': rows},
              open(f'{options.out}/results.json', 'w'), indent=1)
    plot(results, options, f'{options.out}/page-load.svg')
    print('| Packet loss |' + ''.join(f' {way} |' for way in WAYS))
    print('|---:|' + '---:|' * len(WAYS))
    for loss in options.losses:
        print(f'| {loss:g} % |' + ''.join(f' {statistics.median(results[loss, way]):.2f} s |' for way in WAYS))


if __name__ == '__main__':
    main()
