//! A small server for tests of clients: a thread for each connection.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Accepts on a port of its own of 127.0.0.1, until it is dropped. Connections end by themselves.
pub struct ThreadServer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl ThreadServer {
    /// Starts it; `serve` runs on a thread for each connection.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> ThreadServer {
        let listener = TcpListener::bind(("127.0.0.1", crate::free_port())).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, accepted) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, count, serve) = (stop.clone(), accepted.clone(), Arc::new(serve));
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
        ThreadServer { address, accepted, stop, acceptor: Some(acceptor) }
    }
    /// Returns the address on which it accepts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for ThreadServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn connections_are_served_and_counted_until_the_server_is_dropped() {
        let server = ThreadServer::start(|mut stream| stream.write_all(b"here").expect("written"));
        let address = server.address();
        for count in 1..=2 {
            let mut text = String::new();
            TcpStream::connect(address).expect("connected").read_to_string(&mut text).expect("read");
            assert_eq!((text.as_str(), server.accepted()), ("here", count));
        }
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}
