//! Sessions without a worker: effects of a panic.

use crate::client::SessionClient;
use crate::plan::{Content, ContentFuture, ContentResult, StreamListener, StreamNames, StreamPlan, StreamServer};
use crate::session::StreamSession;
use crate::sessions::{AcceptedClient, Host, PassedClient, StreamSessions};
use net::Address;
use net::listen::ListenSpec;
use observe::ErrorLog;
use std::cell::Cell;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

struct NoHost(Cell<u64>);

impl Host for NoHost {
    fn pass(&self, passed: PassedClient, _: &Address) -> Result<(), PassedClient> {
        Err(passed)
    }
    fn plan(&self) -> Option<Rc<Arc<StreamPlan>>> {
        None
    }
    fn number(&self) -> Option<u64> {
        self.0.set(self.0.get() + 1);
        Some(self.0.get())
    }
}

/// Panics in the first session and responds to others.
struct Breaks;

impl Content for Breaks {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut SessionClient) -> ContentFuture<'a> {
        Box::pin(async move {
            runtime::task::yield_now().await;
            assert!(s.number != 1, "a test's panic");
            let _ = client.send_all(b"well").await;
            ContentResult::Status(200)
        })
    }
}

#[allow(clippy::redundant_allocation)]
fn plan() -> Rc<Arc<StreamPlan>> {
    let server = StreamServer {
        name: Vec::new(),
        error_log: Arc::new(ErrorLog::new(Vec::new())),
        tcp_nodelay: true,
        preread_bytes: 0,
        preread_timeout: Duration::ZERO,
        proxy_protocol_timeout: Duration::ZERO,
        resolving: None,
        tls: None,
        post_accept: Vec::new(),
        preaccess: Vec::new(),
        access: Vec::new(),
        preread: Vec::new(),
        first_message: None,
        content: Some(Arc::new(Breaks)),
        loggers: Vec::new(),
        extensions: Vec::new(),
        zone: None,
    };
    let spec = ListenSpec::new(Address::Unix("test".into()));
    let listener =
        StreamListener { spec, proxy_protocol: false, ssl: false, default_server: 0, names: StreamNames::default() };
    Rc::new(Arc::new(StreamPlan {
        generation: 1,
        listeners: vec![listener],
        places: Default::default(),
        servers: vec![server],
        variables: Vec::new(),
        groups_used: false,
        transparent: false,
        extensions: Vec::new(),
        background: Vec::new(),
    }))
}

#[test]
fn a_panic_costs_the_session_that_it_happens_in() {
    let words = runtime::block_on(async {
        let (plan, sessions) = (plan(), Rc::new(StreamSessions::default()));
        let host: Rc<dyn Host> = Rc::new(NoHost(Cell::new(0)));
        let mut clients: Vec<UnixStream> = Vec::new();
        for _ in 0..3 {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("non-blocking");
            clients.push(theirs);
            let local = Rc::new(Address::Unix("test".into()));
            let number = host.number().expect("a number");
            let accepted = AcceptedClient { fd: ours.into(), peer: None, local, listener: 0, number };
            sessions.begin(&plan, accepted, &host);
        }
        assert_eq!(sessions.count(), 3);
        while sessions.count() > 0 {
            runtime::task::yield_now().await;
        }
        clients
    });
    let words: Vec<String> = words
        .into_iter()
        .map(|mut client| {
            let mut text = String::new();
            let _ = client.read_to_string(&mut text);
            text
        })
        .collect();
    assert_eq!(words, ["", "well", "well"]);
}
