//! HTTP/2 over real sockets: cleartext and TLS, misbehaving servers, nginx if it is installed, and the reports.
//!
//! No assertion is about time; every server listens on a port of the system's choice and ends with its test.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_types::{Event, TakenLines};
use load::bench::{FAILED, OK};
use load::bench_main;
use load::report::model::Report;
use testkit::thread_server::ThreadServer;
use wire_h2::{ErrorCode, ServerLimits};

/// The server's reaction to the n-th request of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Answer,
    Reset(ErrorCode),
    /// Answers it, and takes no more streams.
    Goaway,
    /// Closes the connection instead.
    Close,
}

type Script = fn(usize) -> Reaction;

/// A server of HTTP/2 that follows a script; it echoes the length of a body.
struct Server(ThreadServer);

impl Server {
    fn start(limits: ServerLimits, script: Script, tls: Option<Arc<rustls::ServerConfig>>) -> Server {
        Server(ThreadServer::start(move |stream| match tls.clone() {
            None => serve(stream, limits, script),
            Some(config) => {
                let connection = rustls::ServerConnection::new(config).unwrap();
                serve(rustls::StreamOwned::new(connection, stream), limits, script)
            }
        }))
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}/", self.0.address().port())
    }
}

fn serve<S: Read + Write>(mut stream: S, limits: ServerLimits, script: Script) {
    let mut core = wire_h2::Server::new(limits);
    let (mut number, mut bodies, mut answers) = (0, Vec::new(), Vec::new());
    let mut buffer = [0; 16 * 1024];
    loop {
        while let Some(event) = core.poll_event() {
            match event {
                Event::Head { stream, end, .. } => {
                    let id = stream as u32;
                    let reaction = script(number);
                    number += 1;
                    match reaction {
                        Reaction::Answer if !end => bodies.push((id, 0usize)),
                        Reaction::Answer => answers.push(answer(&mut core, id, 5120)),
                        Reaction::Reset(code) => core.reset(id, code),
                        Reaction::Goaway => {
                            answers.push(answer(&mut core, id, 5120));
                            send(&mut core, &mut answers);
                            core.shutdown();
                        }
                        Reaction::Close => return,
                    }
                }
                Event::Body(stream) => {
                    let id = stream as u32;
                    let Some(at) = bodies.iter().position(|(one, _)| *one == id) else { continue };
                    loop {
                        match core.take_body(id) {
                            TakenLines::Bytes(bytes) => bodies[at].1 += bytes.len(),
                            TakenLines::End => {
                                let (_, length) = bodies.remove(at);
                                answers.push(answer(&mut core, id, length));
                                break;
                            }
                            _ => break,
                        }
                    }
                }
                Event::Capacity(_) | Event::Reset(_) | Event::Goaway => {}
            }
        }
        send(&mut core, &mut answers);
        while !core.output().is_empty() {
            let Ok(n) = stream.write(core.output()) else { return };
            core.advance(n);
        }
        if stream.flush().is_err() || (core.is_going() && core.is_idle()) {
            return;
        }
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => drop(core.receive(&buffer[..n])),
            _ => return,
        }
    }
}

/// The head of a 200 with a body of this length, which is to be sent.
fn answer(core: &mut wire_h2::Server, id: u32, length: usize) -> (u32, usize) {
    let text = length.to_string();
    core.send_head(id, 200, [(&b"content-length"[..], text.as_bytes())].into_iter(), length == 0);
    (id, length)
}

/// Sends as much of the bodies as the client's windows permit.
fn send(core: &mut wire_h2::Server, answers: &mut Vec<(u32, usize)>) {
    answers.retain_mut(|(id, left)| {
        while *left > 0 {
            match core.send_body(*id, &vec![b'x'; *left], 16_384, true) {
                0 => return true,
                n => *left -= n,
            }
        }
        core.finish(*id);
        false
    });
}

fn certificate() -> Arc<rustls::ServerConfig> {
    let pair = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(vec!["localhost".to_string()]).unwrap().self_signed(&pair).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// `tidegate bench` with these words; the exit status and the report.
fn bench(words: &str) -> (i32, Option<Report>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let file = std::env::temp_dir().join(format!("bench-http2-{}-{number}.json", std::process::id()));
    let mut args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    args.extend(["-q".into(), "--no-live".into(), "--json".into(), file.clone().into_os_string()]);
    let status = bench_main(args);
    let report = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let _ = std::fs::remove_file(file);
    (status, report)
}

fn good(_: usize) -> Reaction {
    Reaction::Answer
}

#[test]
fn streams_in_clear_and_over_tls() {
    for tls in [None, Some(certificate())] {
        let (scheme, is_tls) = if tls.is_some() { ("https", true) } else { ("http", false) };
        let server = Server::start(ServerLimits::default(), good, tls);
        let (status, report) = bench(&format!("{} --http2 -c 3 -m 7 -n 2000", server.url(scheme)));
        let round = &report.unwrap().points[0].rounds[0];
        assert_eq!((status, round.due, round.in_time, round.failed()), (OK, 2000, 2000, 0));
        assert_eq!(server.0.accepted(), 3);
        assert_eq!(round.handshake.as_ref().map(|times| times.count), is_tls.then_some(3));
        assert!(round.first_byte.is_some() && round.bytes_per_response > 5120.0);
        // An open loop, with the plan's latencies, on as many connections as it takes.
        // A busy machine may be behind the schedule or disturbed, which are statuses of their own.
        let (_, report) = bench(&format!("{} --http2 -r 500 -n 250", server.url(scheme)));
        let round = &report.unwrap().points[0].rounds[0];
        assert_eq!((round.due, round.in_time, round.failed()), (250, 250, 0));
        assert!(round.lag.is_some() && round.service.is_some());
    }
}

#[test]
fn a_server_that_takes_no_agreement_is_told_apart() {
    let mut config = (*certificate()).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let server = Server::start(ServerLimits::default(), good, Some(Arc::new(config)));
    let (status, report) = bench(&format!("{} --http2 -c 1 -n 3", server.url("https")));
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time), (FAILED, 0));
    let (class, _) = round.failure_words().next().unwrap();
    assert!(class.starts_with("TLS ("), "{class}");
}

#[test]
fn a_server_that_speaks_http1_alone_is_guessed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (status, report) = bench(&format!("http://{address}/ --http2 -c 1 -n 3"));
    let report = report.unwrap();
    assert_eq!((status, report.points[0].rounds[0].in_time), (FAILED, 0));
    assert!(report.notes.iter().any(|note| note.contains("prior knowledge")), "{:?}", report.notes);
}

#[test]
fn every_nth_stream_is_reset() {
    fn script(number: usize) -> Reaction {
        match number % 10 {
            3 => Reaction::Reset(ErrorCode::Internal),
            7 => Reaction::Reset(ErrorCode::EnhanceYourCalm),
            _ => Reaction::Answer,
        }
    }
    let server = Server::start(ServerLimits::default(), script, None);
    let (status, report) = bench(&format!("{} --http2 -c 1 -m 5 -n 1000", server.url("http")));
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.due), (FAILED, 800, 1000));
    assert_eq!(round.resets.iter().map(|(code, n)| (*code, *n)).collect::<Vec<_>>(), [(2, 100), (11, 100)]);
    let words: Vec<(String, u64)> = round.failure_words().collect();
    assert_eq!(words, [("stream reset (INTERNAL_ERROR 100, ENHANCE_YOUR_CALM 100)".to_string(), 200)]);
    assert_eq!(server.0.accepted(), 1, "the connection goes on");
}

#[test]
fn a_server_that_goes_away_costs_no_request() {
    fn script(number: usize) -> Reaction {
        if number == 50 { Reaction::Goaway } else { Reaction::Answer }
    }
    let server = Server::start(ServerLimits::default(), script, None);
    let (status, report) = bench(&format!("{} --http2 -c 2 -m 8 -n 2000", server.url("http")));
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.failed()), (OK, 2000, 0));
    assert!(server.0.accepted() >= 2000 / 60);
}

#[test]
fn a_connection_that_is_lost_costs_its_streams() {
    fn script(number: usize) -> Reaction {
        if number == 40 { Reaction::Close } else { Reaction::Answer }
    }
    let server = Server::start(ServerLimits::default(), script, None);
    let (_, report) = bench(&format!("{} --http2 -c 1 -m 4 -n 1000", server.url("http")));
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((round.due, round.in_time + round.failed()), (1000, 1000));
    assert!(round.failed() >= 20, "{:?}", round.failures);
}

#[test]
fn a_small_limit_of_streams_is_kept_to() {
    let server = Server::start(ServerLimits { streams_max: 2, ..ServerLimits::default() }, good, None);
    let (status, report) = bench(&format!("{} --http2 -c 2 -m 50 -n 1000", server.url("http")));
    let round = &report.unwrap().points[0].rounds[0];
    assert_eq!((status, round.in_time, round.failed(), round.again), (OK, 1000, 0, 0));
}

#[test]
fn bodies_go_both_ways_through_small_and_large_windows() {
    let folder = std::env::temp_dir().join(format!("bench-http2-body-{}", std::process::id()));
    std::fs::write(&folder, vec![b'b'; 300_000]).unwrap();
    let server = Server::start(ServerLimits::default(), good, None);
    for options in
        ["", "--stream-window 65535 --connection-window 65535", "--expect-length 300000 --expect-contains xxxx"]
    {
        let words =
            format!("{} --http2 -c 2 -m 3 -n 60 -X POST -b @{} {options}", server.url("http"), folder.display());
        let (status, report) = bench(&words);
        let round = &report.unwrap().points[0].rounds[0];
        assert_eq!((status, round.in_time, round.failed()), (OK, 60, 0), "{options}: {:?}", round.failures);
        assert!(round.bytes_per_response > 300_000.0);
    }
    let _ = std::fs::remove_file(folder);
}

#[test]
fn one_question_and_a_session_speak_http2_too() {
    let server = Server::start(ServerLimits::default(), good, Some(certificate()));
    let args = [server.url("https"), "--http2".into(), "--show".into()];
    assert_eq!(bench_main(args.iter().map(OsString::from).collect()), OK);
    let file = std::env::temp_dir().join(format!("bench-http2-session-{}.toml", std::process::id()));
    std::fs::write(
        &file,
        "[[step]]\npath = \"/a\"\nextract = { n = \"header:content-length\" }\n[[step]]\npath = \"/{{var:n}}\"\n\
         extract = { x = \"regex:x+\" }\n",
    )
    .unwrap();
    let (status, report) = bench(&format!("{} --http2 -c 2 -n 100 --session {}", server.url("https"), file.display()));
    let _ = std::fs::remove_file(file);
    let report = report.unwrap();
    let round = &report.points[0].rounds[0];
    assert_eq!((status, round.in_time, round.requests.len()), (OK, 100, 2), "{:?}", round.failures);
}
