//! Exclusive use of a connection, one request at a time. Dropped unfinished, it closes the connection.

use crate::client::{Counts, ResponseEvent, Stop};
use crate::codec::{Event, MalformedResponse, RequestFacts};
use crate::keep_alive::KeepAlive;
use crate::pool::{self, IdleTimer, PooledConnection};
use bytes::{Buf, Bytes};
use std::io;
use std::task::{Context, Poll};
use transport::Stream;

/// Size of the first read, for a head.
const HEAD_BYTES: usize = 4096;
const BODY_BYTES: usize = 32 * 1024;

/// Longer pieces of a body are written uncopied, separately.
const SHARED_BYTES_MIN: usize = 16 * 1024;

/// A request on a connection of its own: see [`crate::ClientStream`].
pub struct Serial {
    connection: Box<PooledConnection>,
    out: Vec<u8>,
    /// Written bytes of `out`.
    at: usize,
    tail: Bytes,
    input: Vec<u8>,
    /// Size of further reads in bytes.
    piece: usize,
    wrote: bool,
    /// The whole request was sent, with correct lengths.
    whole: bool,
    ended: bool,
    counts: Counts,
}

impl Serial {
    /// `head` is in the protocol's form.
    pub fn new(mut connection: Box<PooledConnection>, asked: &RequestFacts, head: Vec<u8>) -> Serial {
        connection.begin(asked, &head);
        Serial {
            connection,
            out: head,
            at: 0,
            tail: Bytes::new(),
            input: Vec::new(),
            piece: HEAD_BYTES,
            wrote: false,
            whole: false,
            ended: false,
            counts: Counts::default(),
        }
    }
    /// Continues a request started by [`PooledConnection::begin`]: `at` bytes of `head` are written, `input` was received.
    pub fn resume(connection: Box<PooledConnection>, head: Vec<u8>, at: usize, input: Vec<u8>) -> Serial {
        Serial {
            connection,
            out: head,
            at,
            tail: Bytes::new(),
            input,
            piece: HEAD_BYTES,
            wrote: at > 0,
            whole: false,
            ended: false,
            counts: Counts::default(),
        }
    }
    /// Returns the number of requests that the connection has served, this one included.
    pub fn requests(&self) -> u64 {
        self.connection.requests
    }
    /// `end`: the last piece.
    pub fn queue(&mut self, piece: &[u8], end: bool) {
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
        // Earlier in the body's order.
        self.out.extend_from_slice(&std::mem::take(&mut self.tail));
        self.connection.codec.encode_body(piece, end, &mut self.out);
    }
    /// [`Serial::queue`] for a shared piece: long ones are not copied if sent unchanged.
    pub fn queue_shared(&mut self, piece: &Bytes, end: bool) {
        if piece.len() < SHARED_BYTES_MIN || !self.tail.is_empty() || self.connection.codec.frames_body() {
            return self.queue(piece, end);
        }
        self.tail = piece.clone();
    }
    /// [`Serial::queue`] for an owned piece, which becomes the output buffer if it is sent unchanged.
    pub fn queue_owned(&mut self, piece: Vec<u8>, end: bool) {
        if self.is_flushed() && !self.connection.codec.frames_body() {
            self.out = piece;
            self.at = 0;
        } else {
            self.queue(&piece, end);
        }
    }
    /// Tells whether all queued bytes were written.
    pub fn is_flushed(&self) -> bool {
        self.at == self.out.len() && self.tail.is_empty()
    }
    /// Writes queued bytes; ready once all are written. From the second write on, the socket has TCP_NODELAY.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let stream = &self.connection.stream;
        while !self.is_flushed() {
            let from_out = self.at < self.out.len();
            if std::mem::replace(&mut self.wrote, true) {
                stream.hurry();
            }
            let bytes = if from_out { self.out.get(self.at..).unwrap_or_default() } else { &self.tail };
            match stream.try_write(bytes) {
                Ok(0) => return Poll::Ready(Err(Stop::Failed(io::ErrorKind::WriteZero.into()))),
                Ok(n) => {
                    if from_out {
                        self.at += n;
                    } else {
                        self.tail.advance(n);
                        if self.tail.is_empty() {
                            // Releases the buffer behind the slice.
                            self.tail = Bytes::new();
                        }
                    }
                    self.counts.sent += n as u64;
                    self.connection.idle_timer.renew();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match stream.poll_writable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(Stop::Failed(e))),
                    Poll::Pending => return Poll::Pending,
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The server may have responded before closing: reads it.
                Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    return Poll::Ready(Err(Stop::Refused));
                }
                Err(e) => return Poll::Ready(Err(Stop::Failed(e))),
            }
        }
        Poll::Ready(Ok(()))
    }
    /// Marks the request as sent. `honest`: its announced length is correct, so the connection is reusable.
    pub fn sent(&mut self, honest: bool) {
        self.whole = honest;
    }
    /// Takes the output buffer, emptied, if all was written; otherwise an empty one.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        if !self.is_flushed() {
            return Vec::new();
        }
        self.at = 0;
        let mut buffer = std::mem::take(&mut self.out);
        buffer.clear();
        buffer
    }
    /// Decodes the next event from received bytes, without a read.
    pub fn buffered(&mut self) -> Result<Option<Event>, MalformedResponse> {
        if self.ended {
            return Ok(None);
        }
        let event = self.connection.codec.decode(&mut self.input, &mut self.out)?;
        match &event {
            Some(Event::Head(_)) => self.piece = BODY_BYTES,
            Some(Event::End(_)) => self.ended = true,
            _ => {}
        }
        Ok(event)
    }
    /// A read takes at most `max` bytes.
    pub fn poll_event(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<ResponseEvent> {
        loop {
            match self.buffered() {
                Ok(Some(event)) => return Poll::Ready(ResponseEvent::Event(event)),
                // Nothing follows an end.
                Ok(None) if self.ended => return Poll::Ready(ResponseEvent::Closed),
                Ok(None) => {}
                Err(wrong) => return Poll::Ready(ResponseEvent::Wrong(wrong)),
            }
            // A protocol's own replies are short, and awaited by the server.
            if !self.is_flushed()
                && let Poll::Ready(Err(Stop::Failed(e))) = self.poll_flush(cx)
            {
                return Poll::Ready(ResponseEvent::Failed(e));
            }
            let got = if max >= self.piece {
                self.input.reserve(self.piece);
                self.connection.stream.try_read_buf(&mut self.input)
            } else {
                let mut piece = Vec::with_capacity(max);
                let got = self.connection.stream.try_read_buf(&mut piece);
                self.input.append(&mut piece);
                got
            };
            match got {
                Ok(0) => {
                    return Poll::Ready(match self.connection.codec.closed() {
                        Ok(Some(end)) => {
                            self.ended = true;
                            self.whole = false;
                            ResponseEvent::Event(Event::End(end))
                        }
                        Ok(None) => ResponseEvent::Closed,
                        Err(wrong) => ResponseEvent::Wrong(wrong),
                    });
                }
                Ok(n) => {
                    self.counts.received += n as u64;
                    self.connection.idle_timer.renew();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.connection.stream.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(e)) => return Poll::Ready(ResponseEvent::Failed(e)),
                    Poll::Pending => return Poll::Pending,
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(ResponseEvent::Failed(e)),
            }
        }
    }
    /// Returns the connection's timer of silence.
    pub fn idle_timer(&mut self) -> &mut IdleTimer {
        &mut self.connection.idle_timer
    }
    /// Takes the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
    /// Ends a request; keeps the connection unless in doubt.
    pub fn finish(self, keep: &KeepAlive) {
        if self.ended && self.whole && self.input.is_empty() && self.is_flushed() && self.connection.codec.is_reusable()
        {
            pool::give_back(self.connection, keep);
        }
    }
    /// Connection after a 101, with the bytes received since.
    pub fn into_stream(mut self) -> (Stream, Vec<u8>) {
        let mut rest: Vec<u8> = self.connection.codec.take_rest().into();
        rest.append(&mut self.input);
        (self.connection.stream, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::BalanceMethod as Balance;
    use crate::codec::{ReceivedHead, ResponseEnd, ResponseStart, SerialCodec};
    use crate::group::Group;
    use crate::scope::Scope;
    use bytes::Bytes;
    use http_types::BodyLength;
    use net::Address;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::rc::Rc;
    use transport::ConnectOptions;

    /// Test protocol: a length byte and a message, which the server echoes.
    #[derive(Default)]
    struct Echo {
        body: Vec<u8>,
        begun: bool,
        left: Option<usize>,
    }

    impl SerialCodec for Echo {
        fn begin(&mut self, _: &RequestFacts, _: &[u8]) {
            *self = Echo::default();
        }
        fn encode_body(&mut self, piece: &[u8], end: bool, out: &mut Vec<u8>) {
            self.body.extend_from_slice(piece);
            if end {
                out.push(self.body.len() as u8);
                out.append(&mut self.body);
            }
        }
        fn decode(&mut self, input: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
            match self.left {
                None if input.is_empty() => Ok(None),
                None if input[0] == 0 => Err("an echo of nothing".into()),
                None => {
                    let length = usize::from(input.remove(0));
                    self.left = Some(length);
                    let answer = Rc::new(ReceivedHead::default());
                    let length = BodyLength::Exact(length as u64);
                    Ok(Some(Event::Head(ResponseStart { answer, head_bytes: 0, length, behind: input.len() })))
                }
                Some(0) if std::mem::replace(&mut self.begun, true) => Ok(None),
                Some(0) => Ok(Some(Event::End(ResponseEnd::default()))),
                Some(left) if !input.is_empty() => {
                    let n = left.min(input.len());
                    self.left = Some(left - n);
                    Ok(Some(Event::Body(Bytes::from(input.drain(..n).collect::<Vec<_>>()))))
                }
                Some(_) => Ok(None),
            }
        }
        fn is_reusable(&self) -> bool {
            true
        }
    }

    async fn all(stream: &mut Serial) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            std::future::poll_fn(|cx| stream.poll_flush(cx)).await.map_err(|stop| format!("{stop:?}"))?;
            match std::future::poll_fn(|cx| stream.poll_event(cx, usize::MAX)).await {
                ResponseEvent::Event(Event::Body(bytes)) => body.extend_from_slice(&bytes),
                ResponseEvent::Event(Event::End(_)) => return Ok(body),
                ResponseEvent::Event(_) => {}
                other => return Err(format!("{other:?}")),
            }
        }
    }

    fn stream(connection: Box<PooledConnection>, text: &str) -> Serial {
        let mut stream = Serial::new(connection, &RequestFacts::default(), Vec::new());
        let (first, second) = text.split_at(text.len() / 2);
        stream.queue(first.as_bytes(), false);
        stream.queue(second.as_bytes(), true);
        stream.sent(true);
        stream
    }

    struct Plain;

    impl SerialCodec for Plain {
        fn begin(&mut self, _: &RequestFacts, _: &[u8]) {}
        fn frames_body(&self) -> bool {
            false
        }
        fn encode_body(&mut self, piece: &[u8], _: bool, out: &mut Vec<u8>) {
            out.extend_from_slice(piece);
        }
        fn decode(&mut self, _: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<Option<Event>, MalformedResponse> {
            Ok(None)
        }
        fn is_reusable(&self) -> bool {
            false
        }
    }

    #[test]
    fn long_pieces_keep_their_place() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let to = Address::Ip(listener.local_addr().expect("address"));
        let server = std::thread::spawn(move || {
            let mut all = Vec::new();
            listener.accept().expect("accepted").0.read_to_end(&mut all).expect("read");
            all
        });
        let piece = |c: u8, length: usize| Bytes::from(vec![c; length]);
        let pieces = [piece(b'a', SHARED_BYTES_MIN), piece(b'b', 3_000_000), piece(b'c', 5), piece(b'd', 40_000)];
        let group = Group::new("plain", Vec::new(), Balance::RoundRobin, KeepAlive::default(), false);
        runtime::block_on(async {
            let stream = Stream::connect(&to, &ConnectOptions::default()).await.expect("connected");
            let connection = PooledConnection::new(stream, Box::new(Plain), &group, to.clone(), Scope::shared("echo"));
            let mut stream = Serial::new(connection, &RequestFacts::default(), b"head".to_vec());
            for (n, piece) in pieces.iter().enumerate() {
                assert!(n == 0 || stream.is_flushed() || n == 3);
                stream.queue_shared(piece, false);
                // The last two leave together.
                if n != 2 {
                    std::future::poll_fn(|cx| stream.poll_flush(cx)).await.expect("written");
                }
            }
            // Long pieces behind unsent ones.
            stream.queue_shared(&pieces[0], false);
            stream.queue_shared(&pieces[3], false);
            stream.queue(b"end", true);
            std::future::poll_fn(|cx| stream.poll_flush(cx)).await.expect("written");
            assert!(stream.is_flushed());
        });
        let [a, b, c, d] = &pieces;
        let wanted = [&b"head"[..], a, b, c, d, a, d, b"end"].concat();
        assert!(server.join().expect("the server") == wanted);
    }

    #[test]
    fn another_protocol_is_another_codec_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let to = Address::Ip(listener.local_addr().expect("address"));
        let server = std::thread::spawn(move || {
            // Two requests on a connection; then nonsense, and an early end.
            let echo = |client: &mut TcpStream| {
                let mut length = [0];
                client.read_exact(&mut length).expect("a length");
                let mut text = vec![0; usize::from(length[0])];
                client.read_exact(&mut text).expect("a message");
                client.write_all(&[&length[..], &text].concat()).expect("written");
            };
            let (mut client, _) = listener.accept().expect("accepted");
            echo(&mut client);
            echo(&mut client);
            for answer in [&[0][..], &[9, b'x']] {
                let (mut client, _) = listener.accept().expect("accepted");
                client.read_exact(&mut [0; 3]).expect("a request");
                client.write_all(answer).expect("written");
            }
        });
        let group = Group::new("echo", Vec::new(), Balance::RoundRobin, KeepAlive::default(), false);
        let connect = async || {
            let stream = Stream::connect(&to, &ConnectOptions::default()).await.expect("connected");
            PooledConnection::new(stream, Box::<Echo>::default(), &group, to.clone(), Scope::shared("echo"))
        };
        runtime::block_on(async {
            let mut first = stream(connect().await, "hello");
            assert_eq!(all(&mut first).await.as_deref(), Ok(&b"hello"[..]));
            first.finish(&group.keepalive);
            let kept = pool::take_idle(&group, &to, Scope::shared("echo")).expect("a kept connection");
            let mut second = stream(kept, "again");
            assert_eq!(second.requests(), 2);
            assert_eq!(all(&mut second).await.as_deref(), Ok(&b"again"[..]));
            drop(second);
            assert!(pool::take_idle(&group, &to, Scope::shared("echo")).is_none());
            let wrong = all(&mut stream(connect().await, "ab")).await;
            assert!(wrong.as_ref().is_err_and(|why| why.contains("an echo of nothing")), "{wrong:?}");
            let cut = all(&mut stream(connect().await, "ab")).await;
            assert_eq!(cut, Err("Closed".into()));
        });
        server.join().expect("the server");
    }
}
