#!/usr/bin/env python3
"""Memory of proxied WebSockets: N connections through a server to an echoing origin, each used once and then left idle.

usage: measure.py NAME=BINARY... [--connections 1000,10000]
Prints the memory (PSS) of all processes of each server before and with the connections, for each connection.
"""
import os, resource, select, signal, socket, subprocess, sys, tempfile, time

UPGRADE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
CONF = """daemon off; worker_processes 1; worker_rlimit_nofile 65536; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 40000; }}
http {{ access_log off; {paths}
  server {{ listen 127.0.0.1:{port} backlog=16384;
    location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_http_version 1.1; proxy_read_timeout 10m;
      proxy_set_header Connection $http_connection; proxy_set_header Upgrade $http_upgrade; }} }} }}
"""

def origin(listener):
    """Accepts, switches protocols, echoes."""
    poll, known = select.epoll(), {}
    poll.register(listener, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                try:
                    while True:
                        s, _ = listener.accept()
                        s.setblocking(False)
                        known[s.fileno()] = (s, [False])
                        poll.register(s, select.EPOLLIN)
                except BlockingIOError:
                    continue
            s, switched = known[fd]
            try:
                data = s.recv(65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                poll.unregister(fd)
                known.pop(fd)[0].close()
            elif switched[0]:
                s.send(data)
            elif data.endswith(b"\r\n\r\n"):
                switched[0] = True
                s.send(SWITCH)

def pids(root):
    out, todo = [], [root]
    while todo:
        pid = todo.pop()
        out.append(pid)
        todo += [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    return out

def memory_kb(root):
    total = 0
    for pid in pids(root):
        for line in open(f"/proc/{pid}/smaps_rollup"):
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total

def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise SystemExit("the connection was closed")
        data += more
    return data

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

def measure(name, binary, origin_port, connections):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        port = free_port()
        kinds = "client_body proxy fastcgi uwsgi scgi".split()
        paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds) if "nginx" in name else ""
        conf = CONF.format(dir=folder, port=port, origin=origin_port, paths=paths)
        open(f"{folder}/nginx.conf", "w").write(conf)
        server = subprocess.Popen([binary, "-p", folder, "-c", f"{folder}/nginx.conf"])
        clients = []
        try:
            for _ in range(200):
                time.sleep(0.05)
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    pass
            def open_one():
                s = socket.create_connection(("127.0.0.1", port))
                s.sendall(UPGRADE)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += receive(s, 1)
                assert head.startswith(b"HTTP/1.1 101"), head
                s.sendall(b"hello")
                assert receive(s, 5) == b"hello"
                return s
            open_one().close()
            time.sleep(0.5)
            empty = memory_kb(server.pid)
            clients = [open_one() for _ in range(connections)]
            time.sleep(1)
            full = memory_kb(server.pid)
            for s in clients[:: max(1, connections // 100)]:
                s.sendall(b"still")
                assert receive(s, 5) == b"still"
            each = (full - empty) * 1024 / connections
            print(f"{name}: {connections} connections, {empty} KB empty, {full} KB full, {each:.0f} bytes each", flush=True)
        finally:
            for s in clients:
                s.close()
            server.send_signal(signal.SIGTERM)
            server.wait()

def main():
    counts = [1000, 10000]
    servers = []
    words = sys.argv[1:]
    while words:
        word = words.pop(0)
        if word == "--connections":
            counts = [int(n) for n in words.pop(0).split(",")]
        elif "=" in word:
            servers.append(word.split("=", 1))
        else:
            sys.exit(__doc__)
    if not servers:
        sys.exit(__doc__)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    except ValueError:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(16384)
    listener.setblocking(False)
    pid = os.fork()
    if pid == 0:
        origin(listener)
    port = listener.getsockname()[1]
    listener.close()
    try:
        for count in counts:
            for name, binary in servers:
                measure(name, binary, port, count)
    finally:
        os.kill(pid, signal.SIGTERM)

main()
