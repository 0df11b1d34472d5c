//! Upgraded connections (WebSocket, CONNECT): copies both ways until one side ends. Over HTTP/2 a client that ended its
//! side still receives.

use http_engine::{LocalFuture, RawClient, Tunnel};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use upstream::{PeerLease, Stream};

pub const BUFFER_BYTES: usize = 16 * 1024;

pub struct Upgraded {
    pub stream: Stream,
    /// Bytes of the server after the response head.
    pub from_server: Vec<u8>,
    /// Idle timeout (`proxy_read_timeout`).
    pub idle: Duration,
    /// Idle timeout while the server does not read.
    pub stalled: Duration,
    /// Maximum bytes in transit per direction.
    pub buffer: usize,
    pub active: PeerLease,
}

impl Tunnel for Upgraded {
    fn run(self: Box<Self>, client: Box<dyn RawClient>) -> LocalFuture<(u64, u64)> {
        Box::pin(async move {
            // Interactive input must not wait for acknowledgements.
            self.stream.hurry();
            let mut pass = Pass {
                client,
                stream: self.stream,
                to_server: Vec::new(),
                to_client: self.from_server,
                buffer: self.buffer,
                client_done: false,
                server_done: false,
                server_told: false,
                received: 0,
                sent: 0,
            };
            let _active = self.active;
            let mut sleep = runtime::time::sleep(self.idle);
            let mut moved = base::clock::now();
            std::future::poll_fn(|cx| {
                loop {
                    match pass.step(cx) {
                        Ok(true) => moved = base::clock::now(),
                        Ok(false) if pass.over() => return Poll::Ready(()),
                        Ok(false) => {
                            pass.let_go();
                            break;
                        }
                        Err(_) => return Poll::Ready(()),
                    }
                }
                let blocked = !pass.to_server.is_empty();
                let until = moved.plus(if blocked { self.idle.min(self.stalled) } else { self.idle });
                if sleep.deadline() != until {
                    sleep.reset(until);
                }
                Pin::new(&mut sleep).poll(cx)
            })
            .await;
            (pass.received, pass.sent)
        })
    }
}

struct Pass {
    client: Box<dyn RawClient>,
    stream: Stream,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    buffer: usize,
    client_done: bool,
    server_done: bool,
    /// The end of the client's side was passed to the server.
    server_told: bool,
    received: u64,
    sent: u64,
}

impl Pass {
    fn over(&self) -> bool {
        let client_over = self.client_done && self.to_server.is_empty() && !self.client.closes_by_halves();
        client_over || (self.server_done && self.to_client.is_empty())
    }
    /// Frees empty buffers, so that an idle connection holds none.
    fn let_go(&mut self) {
        for buf in [&mut self.to_server, &mut self.to_client] {
            if buf.is_empty() {
                *buf = Vec::new();
            }
        }
    }
    /// Transfers available bytes; returns `true` if any moved.
    fn step(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        if !self.to_client.is_empty()
            && let Poll::Ready(n) = self.client.poll_send(cx, &self.to_client)
        {
            let n = n?;
            self.to_client.drain(..n);
            self.sent += n as u64;
            moved = true;
        }
        if self.to_client.is_empty()
            && let Poll::Ready(Err(e)) = self.client.poll_flush(cx)
        {
            return Err(e);
        }
        if !self.to_server.is_empty() {
            match self.stream.try_write(&self.to_server) {
                Ok(n) => {
                    self.to_server.drain(..n);
                    moved = true;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.stream.poll_writable(cx)?.is_ready() {
                        moved = true;
                    }
                }
                Err(e) => return Err(e),
            }
        }
        if self.client_done && self.to_server.is_empty() && !std::mem::replace(&mut self.server_told, true) {
            // A server that no longer reads closes the connection itself.
            let _ = self.stream.shutdown_write();
        }
        if !self.client_done
            && self.to_server.len() < self.buffer
            && let Poll::Ready(n) = self.client.poll_recv(cx, &mut self.to_server)
        {
            let n = n?;
            self.client_done = n == 0;
            self.received += n as u64;
            moved = true;
        }
        if !self.server_done && self.to_client.len() < self.buffer {
            self.to_client.reserve(self.buffer);
            match self.stream.try_read_buf(&mut self.to_client) {
                Ok(0) => self.server_done = true,
                Ok(_) => moved = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.stream.poll_readable(cx)?.is_ready() {
                        moved = true;
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(moved)
    }
}
