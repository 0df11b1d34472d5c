//! The workers' side of the key process: signatures for handshakes.
//!
//! A thread waits for its signature: rustls makes it in the middle of a handshake step. The wait is bounded. After a wait that ran out,
//! the threads of this process do not wait again for a while, so that a key process that hangs costs one handshake its time and no loop
//! its turns.

use crate::keys::wire::{self, KeyResponse, PACKET_MAX, Request};
use metrics::process::{KEY_CHANNELS, KEY_FAILURES, KEY_SIGNATURES, KEY_WAITED};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tls::isolation::{self, KeyId, KeyService};

/// Time for an answer. A killed key process is followed by another within some 10 ms.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for an answer while the key process is known not to answer, and how often a thread tries.
const PROBE_PATIENCE: Duration = Duration::from_millis(5);
const PROBE_PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    static CHANNEL: RefCell<Option<OwnedFd>> = const { RefCell::new(None) };
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

#[derive(Debug)]
struct DoorService {
    door: OwnedFd,
    began: Instant,
    /// Milliseconds from `began` until the next probe of a key process that does not answer; 0: it answers.
    silent_until: AtomicU64,
}

pub fn install_keys(door: OwnedFd) {
    let service = DoorService { door, began: Instant::now(), silent_until: AtomicU64::new(0) };
    isolation::install_service(Arc::new(service));
}

impl KeyService for DoorService {
    fn sign(&self, id: &KeyId, origin: Option<&str>, scheme: u16, message: &[u8]) -> Result<Vec<u8>, String> {
        let request = Request::Sign { id: *id, scheme, origin: origin.unwrap_or_default(), message };
        let result = self.ask(&request).and_then(KeyResponse::done);
        match result {
            Ok(signature) => {
                KEY_SIGNATURES.up();
                Ok(signature)
            }
            Err(e) => {
                KEY_FAILURES.up();
                Err(e.to_string())
            }
        }
    }

    fn open(&self, path: &str) -> io::Result<Vec<u8>> {
        self.ask(&Request::Open { path }).and_then(KeyResponse::done)
    }
}

impl DoorService {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Asks the key process, and asks again where it ended before it answered.
    fn ask(&self, request: &Request<'_>) -> io::Result<KeyResponse> {
        let started = Instant::now();
        let patience = self.patience()?;
        let answer = BUFFERS.with_borrow_mut(|(packet, answer)| {
            request.write(packet);
            if packet.len() > PACKET_MAX {
                return Err(io::Error::other("the message is too long"));
            }
            answer.resize(PACKET_MAX, 0);
            self.ask_until(packet, answer, patience)
        });
        KEY_WAITED.add(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
        match &answer {
            Ok(_) if self.silent_until.load(Ordering::Relaxed) != 0 => {
                // The next channel has the full time.
                CHANNEL.take();
                self.silent_until.store(0, Ordering::Relaxed);
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                // An answer that comes later belongs to no request.
                CHANNEL.take();
                self.silent_until.store(self.now() + PROBE_PAUSE.as_millis() as u64, Ordering::Relaxed);
            }
            _ => {}
        }
        answer
    }

    /// Time that this thread may wait.
    fn patience(&self) -> io::Result<Duration> {
        let until = self.silent_until.load(Ordering::Relaxed);
        if until == 0 {
            return Ok(PATIENCE);
        }
        let now = self.now();
        // One thread tries.
        let next = now + PROBE_PAUSE.as_millis() as u64;
        if now >= until && self.silent_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Ok(PROBE_PATIENCE);
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "it does not answer"))
    }

    fn ask_until(&self, packet: &[u8], buffer: &mut [u8], patience: Duration) -> io::Result<KeyResponse> {
        let until = Instant::now() + patience;
        loop {
            let channel = match CHANNEL.take() {
                Some(channel) => channel,
                None => self.dial(patience)?,
            };
            match wire::send_packet(&channel, packet, &[]) {
                Ok(()) => {}
                // The key process has ended, or takes no more channels.
                Err(_) if Instant::now() < until => continue,
                Err(e) => return Err(e),
            }
            match wire::receive_packet(&channel, buffer, true) {
                Ok((length, _)) if length > 0 => {
                    CHANNEL.set(Some(channel));
                    return Ok(KeyResponse::read(buffer.get(..length).unwrap_or_default()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"));
                }
                // It ended before it answered.
                _ if Instant::now() < until => {}
                _ => return Err(io::Error::new(io::ErrorKind::TimedOut, "it ended before it answered")),
            }
        }
    }

    /// Opens a channel of this thread. The door queues it if the key process is just starting.
    fn dial(&self, patience: Duration) -> io::Result<OwnedFd> {
        let (ours, theirs) = wire::socket_pair()?;
        // One system call less for each signature than a wait of its own.
        rustix::net::sockopt::set_socket_timeout(&ours, rustix::net::sockopt::Timeout::Recv, Some(patience))?;
        wire::send_packet(&self.door, b"c", &[theirs.as_fd()])?;
        KEY_CHANNELS.up();
        Ok(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn service() -> (DoorService, OwnedFd) {
        let (inside, outside) = wire::socket_pair().expect("a pair");
        (DoorService { door: outside, began: Instant::now(), silent_until: AtomicU64::new(0) }, inside)
    }

    fn visitor(door: &OwnedFd) -> OwnedFd {
        let (_, mut sockets) = wire::receive_packet(door, &mut [0; 8], true).expect("a channel");
        sockets.pop().expect("a socket")
    }

    #[test]
    fn a_request_in_flight_is_asked_again() {
        let (service, door) = service();
        let peer = thread::spawn(move || {
            let mut buffer = vec![0; PACKET_MAX];
            // The first key process reads the request and ends.
            let first = visitor(&door);
            wire::receive_packet(&first, &mut buffer, true).expect("a request");
            drop(first);
            let second = visitor(&door);
            for answer in [KeyResponse::Done(b"signature".to_vec()), KeyResponse::Words("no".into())] {
                let (length, _) = wire::receive_packet(&second, &mut buffer, true).expect("a request");
                assert!(matches!(Request::read(&buffer[..length]), Some(Request::Sign { scheme: 0x0804, .. })));
                wire::send_packet(&second, &answer.bytes(), &[]).expect("sent");
            }
            // Ends between two requests.
            drop(second);
            let third = visitor(&door);
            let (length, _) = wire::receive_packet(&third, &mut buffer, true).expect("a request");
            assert_eq!(Request::read(&buffer[..length]), Some(Request::Open { path: "/x" }));
            wire::send_packet(&third, &KeyResponse::Errno(2).bytes(), &[]).expect("sent");
        });
        assert_eq!(service.sign(&[1; 32], None, 0x0804, b"m"), Ok(b"signature".to_vec()));
        assert_eq!(service.sign(&[1; 32], None, 0x0804, b"m"), Err("no".into()));
        assert_eq!(service.open("/x").expect_err("an error").raw_os_error(), Some(2));
        peer.join().expect("it answered");
    }

    #[test]
    fn a_key_process_that_hangs_costs_one_wait() {
        let (service, door) = service();
        assert!(service.sign(&[1; 32], None, 1, b"m").is_err());
        let until = service.silent_until.load(Ordering::Relaxed);
        assert!(until > 0);
        // Until the next probe no thread waits: not even a channel is opened.
        let before = std::iter::from_fn(|| wire::receive_packet(&door, &mut [0; 8], false).ok()).count();
        assert_eq!(before, 1);
        assert_eq!(service.sign(&[1; 32], None, 1, b"m"), Err("it does not answer".into()));
        assert!(wire::receive_packet(&door, &mut [0; 8], false).is_err());
        // The probe finds it alive.
        let peer = thread::spawn(move || {
            loop {
                let channel = visitor(&door);
                let request = wire::receive_packet(&channel, &mut vec![0; PACKET_MAX], true);
                if request.is_ok() && wire::send_packet(&channel, &KeyResponse::Done(vec![7]).bytes(), &[]).is_ok() {
                    // Until the service has read it.
                    let _ = wire::receive_packet(&channel, &mut [0; 8], true);
                }
            }
        });
        wait_for_probe(&service);
        assert_eq!(service.silent_until.load(Ordering::Relaxed), 0);
        drop(peer);
    }

    /// Asks until a probe gets its answer: a busy machine may take longer than one waits.
    fn wait_for_probe(service: &DoorService) {
        for _ in 0..1000 {
            service.silent_until.store(1, Ordering::Relaxed);
            if service.sign(&[1; 32], None, 1, b"m").is_ok() {
                return;
            }
        }
    }
}
