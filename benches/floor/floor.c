// The least that a server can do on this kernel: epoll, one recv() and one send() a request, nothing looked at. What a scenario costs here is
// what no server without kernel bypass gets below, so it tells how much of a figure is the server's own.
//
//     cc -O2 -o /tmp/floor benches/floor/floor.c && /tmp/floor PORT BODY_BYTES [close]
//     /tmp/floor PORT proxy ORIGIN_PORT
//
// `close`: a connection for every request; it is read at once after accept(), and the answer leaves with the FIN.
// `proxy`: a connection to the origin for each client, and bytes copied as they come: two recv() and two send() a request.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static char out[1 << 20], in[1 << 15];
static int length, closing, events;
// The other side of each proxied connection; 0: none.
static int other[1 << 16];
static struct sockaddr_in origin;

static void watch(int fd, unsigned what) {
    struct epoll_event e = {.events = what, .data.fd = fd};
    epoll_ctl(events, EPOLL_CTL_ADD, fd, &e);
}

// One read, one write; 0 when there was nothing to read.
static int serve(int fd) {
    ssize_t got = recv(fd, in, sizeof in, 0);
    if (other[fd]) {
        if (got > 0) send(other[fd], in, got, MSG_NOSIGNAL);
        if (got == 0) {
            int far = other[fd];
            close(far);
            close(fd);
            other[far] = other[fd] = 0;
        }
        return 1;
    }
    if (got < 0) return 0;
    if (got > 0) send(fd, out, length, MSG_NOSIGNAL | (closing ? MSG_MORE : 0));
    if (got == 0 || closing) close(fd);
    return 1;
}

// Connects to the origin for a client; 0: it cannot be had.
static int join(int client) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || fd >= 1 << 16 || client >= 1 << 16 || connect(fd, (void *)&origin, sizeof origin)) return 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    other[client] = fd;
    other[fd] = client;
    watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    int proxy = !strcmp(argv[2], "proxy"), body = atoi(argv[2]), one = 1;
    if (proxy && argc < 4) return 1;
    if (proxy)
        origin = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(atoi(argv[3])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    closing = !proxy && argc > 3;
    length = sprintf(out,
                     "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Sun, 22 Nov 2026 01:00:00 GMT\r\nContent-Type: text/plain\r\n"
                     "Content-Length: %d\r\nConnection: %s\r\n\r\n",
                     body, closing ? "close" : "keep-alive");
    if (body < 0 || body > (int)sizeof out - length) return 1;
    memset(out + length, 'x', body);
    length += body;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (void *)&at, sizeof at) || listen(door, 511)) return 1;
    events = epoll_create1(0);
    watch(door, EPOLLIN);
    struct epoll_event ready[512];
    for (;;) {
        int n = epoll_wait(events, ready, 512, -1);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.fd != door) {
                serve(ready[i].data.fd);
                continue;
            }
            for (int taken = 0, fd; taken < 32 && (fd = accept4(door, 0, 0, SOCK_NONBLOCK)) >= 0; taken++) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                if (proxy && !join(fd)) {
                    close(fd);
                    continue;
                }
                if (!closing || !serve(fd)) watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
            }
        }
    }
}
