//! The client against servers that behave and servers that do not.

use http_client::{Client, ClientFailure, ClientStep, Limits, Request, Response, Settings, Url};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tls::{ClientRules, ClientSettings};

/// Serves one connection for each script: for each of its parts, waits for a request's head, then sends the part. The connection
/// ends with its script. Returns the heads.
fn server(scripts: Vec<Vec<Vec<u8>>>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let thread = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for script in scripts {
            let (mut stream, _) = listener.accept().expect("accepted");
            for part in script {
                match head(&mut stream) {
                    Some(text) => heads.push(text),
                    None => break,
                }
                // A client that has seen enough may be gone.
                let _ = stream.write_all(&part);
            }
        }
        heads
    });
    (address, thread)
}

fn head(stream: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut one) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn get(address: SocketAddr, path: &str) -> Request {
    Request::new("GET", Url::parse(&format!("http://{address}{path}")).expect("valid"))
}

fn asked(client: &Client, request: &Request) -> Result<Response, ClientFailure> {
    runtime::block_on(client.ask(request))
}

fn ask_once(bytes: &[u8], client: &Client) -> Result<Response, ClientFailure> {
    let (address, thread) = server(vec![vec![bytes.to_vec()]]);
    let done = asked(client, &get(address, "/"));
    thread.join().expect("served");
    done
}

#[test]
fn bodies_of_every_framing_are_read() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nT: u\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nhello",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let done = ask_once(response.as_bytes(), &Client::default()).expect(response);
        assert_eq!((done.status(), done.body.as_slice()), (200, b"hello".as_slice()), "{response}");
    }
    let done = ask_once(b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", &Client::default());
    assert_eq!(done.map(|done| (done.status(), done.body)).ok(), Some((204, Vec::new())));
    let done = ask_once(
        b"HTTP/1.1 201 Created\r\nLocation: /a\r\nlink: b\r\nLink: c\r\nContent-Length: 0\r\n\r\n",
        &Client::default(),
    );
    let done = done.expect("answered");
    assert_eq!((done.text("location"), done.fields("LINK")), (Some("/a"), vec![b"b".as_slice(), b"c".as_slice()]));
}

#[test]
fn misbehaving_servers_cost_one_request() {
    let small =
        || Client::new(Settings { limits: Limits { head: 200, body: 10, ..Limits::default() }, ..Settings::default() });
    let endless = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 1000]].concat();
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(101);
    for (bytes, why) in [
        (b"".as_slice(), "Closed"),
        (b"HTTP/1.1 200", "Closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "Cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", "Excess"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello there", "TooLarge"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello there", "TooLarge"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "Framing"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", "Excess"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "Malformed"),
        (&endless, "Malformed"),
        (&interim, "Interim"),
    ] {
        let failure = ask_once(bytes, &small()).expect_err(why);
        assert!(format!("{failure:?}").starts_with(why), "{failure:?}, not {why}");
        assert!(!failure.to_string().is_empty());
    }
}

#[test]
fn silent_and_missing_servers_are_noticed() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = silent.local_addr().expect("address");
    let client = Client::new(Settings {
        limits: Limits { idle: Duration::from_millis(1), ..Limits::default() },
        ..Settings::default()
    });
    assert!(matches!(asked(&client, &get(address, "/")), Err(ClientFailure::TimedOut(ClientStep::Receive))));
    let client = Client::new(Settings { total: Duration::from_millis(1), ..Settings::default() });
    assert!(matches!(asked(&client, &get(address, "/")), Err(ClientFailure::TimedOut(ClientStep::Receive))));
    drop(silent);
    assert!(matches!(asked(&Client::default(), &get(address, "/")), Err(ClientFailure::Io(ClientStep::Connect, _))));
    let unknown = Request::new("GET", Url::parse("http://tidegate.invalid/").expect("valid"));
    let client = Client::new(Settings { connect: Duration::from_millis(1), ..Settings::default() });
    assert!(matches!(asked(&client, &unknown), Err(ClientFailure::Unresolved(_))));
    let refused = Request::new("GET", Url::parse("https://127.0.0.1:1/").expect("valid"));
    assert!(matches!(asked(&Client::default(), &refused), Err(ClientFailure::Io(ClientStep::Connect, _))));
}

#[test]
fn connections_are_reused_and_replaced() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    // The first connection answers twice and ends with the third request; a new one takes it.
    let (address, thread) = server(vec![vec![OK.to_vec(), OK.to_vec(), Vec::new()], vec![OK.to_vec()]]);
    let client = Client::default();
    runtime::block_on(async {
        for path in ["/1", "/2", "/3"] {
            assert_eq!(client.ask(&get(address, path)).await.expect("answered").body, b"x");
        }
    });
    let lines: Vec<String> =
        thread.join().expect("served").iter().filter_map(|head| head.lines().next().map(String::from)).collect();
    assert_eq!(lines, ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /3 HTTP/1.1", "GET /3 HTTP/1.1"]);
}

#[test]
fn certificates_are_verified_by_name() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]).expect("made");
    let pem = made.cert.pem();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    let config = Arc::new(config.expect("a configuration"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let thread = std::thread::spawn(move || {
        for _ in 0..3 {
            let (mut socket, _) = listener.accept().expect("accepted");
            let mut tls = rustls::ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let mut bytes = [0; 1024];
            // A client that refuses the certificate sends nothing.
            if stream.read(&mut bytes).is_ok_and(|n| n > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret").expect("written");
            }
        }
    });
    let settings = ClientSettings {
        verify: true,
        addresses: true,
        trusted: tls::certs::parse_certificates(pem.as_bytes()).expect("a certificate"),
        ..ClientSettings::default()
    };
    let clock: tls::Clock = Arc::new(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    });
    let client = |settings: &ClientSettings| {
        let rules = ClientRules::build(settings, &clock, &mut Vec::new()).expect("rules");
        Client::new(Settings { rules: Some(rules), ..Settings::default() })
    };
    let request = |host: &str| Request::new("GET", Url::parse(&format!("https://{host}:{port}/")).expect("valid"));
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(asked(&client(&settings), &request(host)).expect("answered").body, b"secret");
    }
    // As nginx's proxies do: an address is no host name.
    let refused = asked(&client(&ClientSettings { addresses: false, ..settings }), &request("127.0.0.1"));
    assert!(matches!(refused, Err(ClientFailure::Handshake(_))), "{refused:?}");
    thread.join().expect("served");
}
