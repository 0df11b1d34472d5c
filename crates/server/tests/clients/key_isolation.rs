//! Private keys in a process of their own: handshakes of all kinds, ends and replacements of the key process, and the
//! memory of workers.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::client::get;
use support::{Running, Site, alive, children, free_port, signal, stop, text, wait};
use tls::{ClientRules, ClientSettings, Protocols, Target, TlsStream};

const MAIN: &str = "daemon off; worker_processes 2; ssl_key_isolation on;";
const KINDS: [&str; 5] = ["rsa", "p256", "p384", "p521", "ed25519"];

fn new_key(kind: &str) -> KeyPair {
    let made = match kind {
        "rsa" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
        "p384" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "p521" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        "ed25519" => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        _ => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
    };
    made.expect("a key")
}

struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "the authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = new_key("p256");
        let pem = params.clone().self_signed(&key).expect("signed").pem();
        Authority { params, key, pem }
    }

    fn issue(&self, name: &str, kind: &str) -> (String, KeyPair) {
        let key = new_key(kind);
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = Issuer::from_params(&self.params, &self.key);
        (params.signed_by(&key, &issuer).expect("signed").pem(), key)
    }

    /// Writes certificate and key to a site: `NAME.crt`, `NAME.key`.
    fn put(&self, site: &Site, name: &str, kind: &str) -> KeyPair {
        let (certificate, key) = self.issue(name, kind);
        site.write(&format!("conf/{name}.crt"), &certificate);
        site.write(&format!("conf/{name}.key"), &key.serialize_pem());
        key
    }
}

fn clock() -> tls::Clock {
    Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// A client of one TLS version that trusts an authority.
struct Client {
    rules: Arc<ClientRules>,
    port: u16,
}

impl Client {
    fn new(port: u16, authority: &Authority, tls13: bool) -> Client {
        let trusted = tls::certs::parse_certificates(authority.pem.as_bytes()).expect("PEM");
        let protocols = Protocols { tls12: !tls13, tls13, older: false };
        let settings = ClientSettings { verify: true, trusted, protocols, ..ClientSettings::default() };
        Client { rules: ClientRules::build(&settings, &clock(), &mut Vec::new()).expect("rules"), port }
    }

    /// A handshake and a request; what the server sends until the expected text or its end.
    fn ask(&self, name: &str, request: &str, expected: &str) -> Result<String, String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
        let target = Target { peer: "here".into(), name: name.into(), send_name: true, alpn: Vec::new() };
        let mut stream = TlsStream::client(&self.rules, &target, None).map_err(|e| e.to_string())?;
        let (mut answer, mut sent) = (Vec::new(), false);
        loop {
            if !sent && !stream.is_handshaking() {
                stream.send(&[IoSlice::new(request.as_bytes())]).map_err(|e| e.to_string())?;
                sent = true;
            }
            socket.write_all(stream.output()).map_err(|e| e.to_string())?;
            stream.advance(stream.output().len());
            if text(&answer).contains(expected) {
                return Ok(text(&answer));
            }
            let mut bytes = vec![0; 16 * 1024];
            let n = socket.read(&mut bytes).map_err(|e| e.to_string())?;
            let received = stream.receive(&mut bytes[..n], &mut answer).map_err(|e| e.to_string())?;
            if (received.closed || n == 0) && !text(&answer).contains(expected) {
                return Err(format!("the end after \"{}\"", text(&answer)));
            }
        }
    }

    fn get(&self, name: &str) -> Result<String, String> {
        self.ask(name, &format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"), "served")
    }
}

/// The child of a master with such a title.
fn child(master: u32, title: &str) -> Option<u32> {
    children(master)
        .into_iter()
        .find(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| text(&line).contains(title)))
}

fn key_process(master: u32) -> u32 {
    wait("the key process", || child(master, "key process").ok_or("none"))
}

fn worker(master: u32) -> u32 {
    wait("the worker", || child(master, "worker process").ok_or("none"))
}

/// Secret numbers of a key, as they are in PKCS #8: scalars, primes and seeds.
fn secrets(key: &KeyPair) -> Vec<Vec<u8>> {
    fn walk(mut der: &[u8], out: &mut Vec<Vec<u8>>) {
        while let [tag, first, rest @ ..] = der {
            let long = usize::from(first & 0x7f);
            let (length, rest) = match first & 0x80 {
                0 => (long, rest),
                _ if long <= 2 && rest.len() > long => {
                    (rest[..long].iter().fold(0, |n, byte| n << 8 | usize::from(*byte)), &rest[long..])
                }
                _ => return,
            };
            let Some((body, rest)) = rest.split_at_checked(length) else { return };
            match tag {
                0x30 => walk(body, out),
                // Nested structures, or the secret itself.
                0x04 if body.first().is_some_and(|tag| *tag == 0x30 || *tag == 0x04) && body.len() != 32 => {
                    walk(body, out)
                }
                0x02 | 0x04 if body.len() >= 32 => {
                    out.push(body.iter().copied().skip_while(|byte| *byte == 0).collect())
                }
                _ => {}
            }
            der = rest;
        }
    }
    let mut all = Vec::new();
    walk(&key.serialize_der(), &mut all);
    if all.len() > 2 {
        // RSA: the modulus is public.
        all.remove(0);
    }
    all
}

/// Forms in which a key may be in memory: numbers of either byte order, and lines of its file.
fn forms(key: &KeyPair) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for secret in secrets(key) {
        // A part suffices: allocators write to the beginnings of freed blocks.
        let part = secret[secret.len() / 2..].to_vec();
        forms.push(part.iter().rev().copied().collect());
        forms.push(part);
    }
    assert!(!forms.is_empty());
    // Characters of the file that hold a part of the secret and nothing constant or public.
    let pem = key.serialize_pem();
    let line = |n: usize| pem.lines().nth(n).unwrap_or_default().as_bytes().to_vec();
    match forms[0].len() {
        16 if pem.lines().nth(1).is_some_and(|line| line.starts_with("MFE") || line.starts_with("MC4")) => {
            forms.push(line(1)[24..56].to_vec());
        }
        // RSA: the numbers suffice.
        64.. => {}
        _ => forms.push(line(2)[..24].to_vec()),
    }
    forms
}

const PAGE: u64 = 4096;

/// Searches all memory of a process. Returns `None` if the test may not read it.
fn memory_has(pid: u32, forms: &[Vec<u8>]) -> Option<Vec<usize>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let pages = std::fs::File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let (mut found, mut bytes_read) = (vec![0; forms.len()], 0);
    for line in maps.lines().filter(|line| !line.contains("[vvar") && !line.contains("[vsyscall")) {
        let (range, rights) = line.split_once(' ')?;
        if !rights.starts_with('r') {
            continue;
        }
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        // Reads only pages that exist: allocators reserve much more.
        let mut entries = vec![0; ((to - from) / PAGE * 8) as usize];
        if pages.read_exact_at(&mut entries, from / PAGE * 8).is_err() {
            continue;
        }
        let exists: Vec<bool> = entries.chunks_exact(8).map(|entry| entry[7] & 0xc0 != 0).collect();
        let mut at = 0;
        for run in exists.chunk_by(|a, b| a == b) {
            let (start, length) = (from + at * PAGE, run.len() as u64 * PAGE);
            at += run.len() as u64;
            let mut bytes = vec![0; length as usize];
            if !run[0] || memory.read_exact_at(&mut bytes, start).is_err() {
                continue;
            }
            bytes_read += bytes.len();
            for (count, form) in found.iter_mut().zip(forms) {
                *count += usize::from(contains(&bytes, form));
            }
        }
    }
    (bytes_read > 0).then_some(found)
}

fn contains(bytes: &[u8], form: &[u8]) -> bool {
    let Some((first, rest)) = form.split_first() else { return false };
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| byte == first) {
        at += next + 1;
        if bytes[at..].starts_with(rest) {
            return true;
        }
    }
    false
}

/// No key is in the memory of master and workers, and each is in that of the key process.
fn assert_isolated(running: &Running<'_>, keys: &[(&str, &KeyPair)]) {
    let (master, holder) = (running.pid(), key_process(running.pid()));
    for (name, key) in keys {
        let forms = forms(key);
        let Some(held) = memory_has(holder, &forms) else {
            testkit::missing_means("the memory of other processes cannot be read");
            return;
        };
        assert!(held.iter().any(|count| *count > 0), "{name}: not in the key process, {} forms", forms.len());
        for pid in [master, worker(master)] {
            let found = memory_has(pid, &forms).expect("readable");
            assert!(found.iter().all(|count| *count == 0), "{name} is in process {pid}: {found:?}");
        }
    }
}

#[test]
fn every_kind_of_key_signs_and_no_worker_holds_it() {
    let (port, plain, stream, imap) = (free_port(), free_port(), free_port(), free_port());
    let authority = Authority::new();
    let servers: String = KINDS
        .iter()
        .map(|kind| {
            format!(
                "server {{ listen 127.0.0.1:{port} ssl; listen 127.0.0.1:{port} quic; server_name {kind}; ssl_certificate {kind}.crt;
                 ssl_certificate_key {kind}.key; return 200 \"served $http3\"; }}"
            )
        })
        .collect();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ {servers} server {{ listen 127.0.0.1:{plain}; location /metrics {{ metrics; }} }} }}
             stream {{ server {{ listen 127.0.0.1:{stream} ssl; ssl_certificate p256.crt; ssl_certificate_key p256.key;
                return served; }} }}
             mail {{ server_name m; auth_http 127.0.0.1:1; server {{ listen 127.0.0.1:{imap} ssl; protocol imap;
                ssl_certificate rsa.crt; ssl_certificate_key rsa.key; }} }}"
        ),
    );
    let keys: Vec<(&str, KeyPair)> = KINDS.iter().map(|kind| (*kind, authority.put(&site, kind, kind))).collect();
    let running = site.start();
    for tls13 in [false, true] {
        let client = Client::new(port, &authority, tls13);
        // TLS 1.2 has the client list the curve of a certificate; this library lists no P-521.
        for kind in KINDS.into_iter().filter(|kind| tls13 || *kind != "p521") {
            wait(kind, || client.get(kind));
        }
        let client = Client::new(stream, &authority, tls13);
        wait("a session", || client.ask("p256", "", "served"));
        let client = Client::new(imap, &authority, tls13);
        wait("a greeting", || client.ask("rsa", "", "* OK"));
    }
    for kind in KINDS {
        let mut client = support::http3::Client::connect(port, kind, &support::http3::config());
        client.until("the handshake", |client| client.connected.is_some());
        let stream = client.get(kind, "/");
        assert_eq!(client.answer(stream).text(), "served h3");
        client.close();
    }
    let keys: Vec<(&str, &KeyPair)> = keys.iter().map(|(name, key)| (*name, key)).collect();
    assert_isolated(&running, &keys);
    let metrics = support::client::Client::connect(plain)
        .and_then(|mut client| client.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        .expect("metrics")
        .1;
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse::<f64>().ok()).unwrap_or_else(|| panic!("{name}: {metrics}"))
    };
    assert!(value("tidegate_key_signatures_total") >= 18.0);
    assert!(value("tidegate_key_signatures_failed_total") == 0.0 && value("tidegate_key_wait_seconds_total") > 0.0);
    assert!(value("tidegate_key_connections_total") >= 1.0);
    let holder = key_process(running.pid());
    let limits = std::fs::read_to_string(format!("/proc/{holder}/limits")).expect("limits");
    assert!(limits.lines().any(|line| line.starts_with("Max core file size") && line.contains(" 0 ")), "{limits}");
    running.quit();
    wait("the end of the key process", || if alive(holder) { Err("alive") } else { Ok(()) });
    site.assert_no_alerts();
}

/// Handshakes without end on two threads, until the guard is dropped; their failures.
struct Handshakes {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Handshakes {
    fn start(port: u16, authority: &Authority, name: &'static str) -> Handshakes {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let one = |tls13: bool| {
            let client = Client::new(port, authority, tls13);
            let (stop, done) = (stop.clone(), done.clone());
            thread::spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    if let Err(why) = client.get(name) {
                        failures.push(why);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                failures
            })
        };
        let threads = vec![one(false), one(true)];
        Handshakes { stop, done, threads }
    }
    /// Waits for so many more handshakes.
    fn pass(&self, count: usize) {
        let until = self.done.load(Ordering::Relaxed) + count;
        wait("handshakes", || (self.done.load(Ordering::Relaxed) >= until).then_some(()).ok_or("fewer"));
    }
    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    }
}

fn tls_server(port: u16, more: &str) -> String {
    format!(
        "http {{ ssl_session_tickets off; {more} server {{ listen 127.0.0.1:{port} ssl; server_name a;
         ssl_certificate a.crt; ssl_certificate_key a.key; return 200 served; }} }}"
    )
}

#[test]
fn no_handshake_fails_when_the_key_process_is_killed() {
    let port = free_port();
    let authority = Authority::new();
    let plain = free_port();
    // A new process takes over the keys of these servers first: it may answer no worker before it has the last one.
    const SERVERS: usize = 40;
    let names: Vec<String> = (0..SERVERS).map(|number| format!("early{number}")).collect();
    let mut more = format!("server {{ listen 127.0.0.1:{plain}; location / {{ metrics; }} }}");
    for name in &names {
        more += &format!(
            "server {{ listen 127.0.0.1:{port} ssl; server_name {name}; ssl_certificate {name}.crt;
             ssl_certificate_key {name}.key; return 200 served; }}"
        );
    }
    let site = Site::new(MAIN, &tls_server(port, &more));
    for name in names.iter().map(String::as_str).chain(["a"]) {
        authority.put(&site, name, "p256");
    }
    let running = site.start();
    let client = Client::new(port, &authority, true);
    wait("an answer", || client.get("a"));
    let handshakes = Handshakes::start(port, &authority, "a");
    // The file of the key is replaced without a reload: the next process has the key of the configuration.
    authority.put(&site, "a", "p256");
    const KILLS: usize = 10;
    for _ in 0..KILLS {
        let holder = key_process(running.pid());
        handshakes.pass(5);
        signal(holder, "KILL");
        wait("another key process", || {
            child(running.pid(), "key process").filter(|pid| *pid != holder).ok_or_else(|| site.log())
        });
        handshakes.pass(5);
    }
    assert_eq!(handshakes.end(), Vec::<String>::new(), "{}", site.log());
    site.wait_for_log("key process", 20);
    assert!(site.log().contains("exited on signal 9"));
    // The worker process learns the number from the master.
    let line = format!("tidegate_key_processes_respawned_total {KILLS}\n");
    wait("the metric", || match get(plain) {
        Ok((200, page)) if page.contains(&line) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    running.quit();
}

#[test]
fn reloads_hand_over_keys_and_let_go_of_old_ones() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new(MAIN, &tls_server(port, ""));
    let first = authority.put(&site, "a", "p256");
    let running = site.start();
    let client = Client::new(port, &authority, true);
    wait("an answer", || client.get("a"));
    let (holder, process) = (key_process(running.pid()), worker(running.pid()));
    let handshakes = Handshakes::start(port, &authority, "a");
    let mut last = None;
    for n in 1..=10 {
        last = Some(authority.put(&site, "a", if n % 2 == 0 { "p256" } else { "rsa" }));
        running.signal("HUP");
        site.wait_for_log("is no longer used", n);
        handshakes.pass(2);
    }
    assert_eq!(handshakes.end(), Vec::<String>::new(), "{}", site.log());
    assert_eq!((key_process(running.pid()), worker(running.pid())), (holder, process), "both stay: {}", site.log());
    let last = last.expect("a key");
    assert_isolated(&running, &[("last", &last)]);
    // The first key is gone from its process: its memory may keep traces, its table does not. A new process has the
    // last key only.
    signal(holder, "KILL");
    wait("another key process", || {
        child(running.pid(), "key process").filter(|pid| *pid != holder).ok_or("the old one")
    });
    wait("an answer", || client.get("a"));
    if let Some(found) = memory_has(key_process(running.pid()), &forms(&first)) {
        assert!(found.iter().all(|count| *count == 0), "{found:?}");
    }
    // A reload that is refused changes nothing.
    site.write("conf/a.key", "no key");
    running.signal("HUP");
    site.wait_for_log("cannot load certificate key", 1);
    client.get("a").expect("an answer");
    running.quit();
}

#[test]
fn keys_by_variables_and_client_certificates() {
    let (port, upstream, fixed) = (free_port(), free_port(), free_port());
    let authority = Authority::new();
    let front = "proxy_ssl_certificate client.crt; proxy_ssl_certificate_key client.key;";
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate certs/$ssl_server_name.crt;
                ssl_certificate_key certs/$ssl_server_name.key;
                location / {{ proxy_pass https://127.0.0.1:{upstream}; {front} }} }}
             server {{ listen 127.0.0.1:{fixed} ssl; ssl_certificate back.crt; ssl_certificate_key back.key;
                location / {{ proxy_pass https://127.0.0.1:{upstream}; proxy_ssl_certificate certs/$ssl_server_name.crt;
                proxy_ssl_certificate_key certs/$ssl_server_name.key; }} }}
             server {{ listen 127.0.0.1:{upstream} ssl; ssl_certificate back.crt; ssl_certificate_key back.key;
                ssl_client_certificate ca.crt; ssl_verify_client on; return 200 \"served $ssl_client_s_dn\"; }} }}"
        ),
    );
    std::fs::create_dir_all(site.path("conf/certs")).expect("a folder");
    site.write("conf/ca.crt", &authority.pem);
    let mut keys = vec![authority.put(&site, "client", "rsa"), authority.put(&site, "back", "p256")];
    keys.extend(["one", "two"].map(|name| authority.put(&site, &format!("certs/{name}"), "p256")));
    let running = site.start();
    // (The certificates name "certs/one", which no client asks for: trust in the authority suffices.)
    let trusting = |port| {
        let settings = ClientSettings { verify: false, ..ClientSettings::default() };
        Client { rules: ClientRules::build(&settings, &clock(), &mut Vec::new()).expect("rules"), port }
    };
    let client = trusting(port);
    for name in ["one", "two", "one"] {
        assert!(wait("an answer", || client.get(name)).contains("served CN=client"));
    }
    assert!(client.get("none").is_err());
    let by_variable = trusting(fixed);
    assert!(wait("an answer", || by_variable.get("two")).contains("served CN=certs/two"));
    let named: Vec<(&str, &KeyPair)> = keys.iter().map(|key| ("a key", key)).collect();
    assert_isolated(&running, &named);
    // A new key process loads them again.
    let holder = key_process(running.pid());
    signal(holder, "KILL");
    wait("another key process", || {
        child(running.pid(), "key process").filter(|pid| *pid != holder).ok_or("the old one")
    });
    wait("an answer", || client.get("two"));
    running.quit();
}

#[test]
fn encrypted_keys_and_files_with_both() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new(
        MAIN,
        &format!(
            "http {{ ssl_password_file words; server {{ listen 127.0.0.1:{port} ssl; server_name both; ssl_certificate both.pem;
                ssl_certificate_key both.pem; return 200 served; }}
             server {{ listen 127.0.0.1:{port} ssl; server_name locked; ssl_certificate locked.crt;
                ssl_certificate_key locked.key; return 200 served; }} }}"
        ),
    );
    let both = authority.put(&site, "both", "p256");
    let text = format!("{}{}", site.read("conf/both.crt"), site.read("conf/both.key"));
    site.write("conf/both.pem", &text);
    let locked = authority.put(&site, "locked", "rsa");
    site.write("conf/words", "wrong\ncorrect horse battery staple\n");
    let (from, to) = (site.path("conf/locked.key"), site.path("conf/encrypted"));
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["pkcs8", "-topk8", "-v2", "aes256", "-passout", "pass:correct horse battery staple", "-in"]);
    let Ok(status) = openssl.arg(&from).arg("-out").arg(&to).status() else {
        testkit::missing_peer("there is no openssl");
        return;
    };
    assert!(status.success());
    std::fs::rename(&to, &from).expect("renamed");
    let running = site.start();
    let client = Client::new(port, &authority, true);
    for name in ["both", "locked"] {
        wait(name, || client.get(name));
    }
    assert_isolated(&running, &[("both", &both), ("locked", &locked)]);
    if let Some(found) = memory_has(worker(running.pid()), &[b"correct horse battery staple".to_vec()]) {
        assert_eq!(found, [0], "the password");
    }
    running.quit();
}

#[test]
fn a_key_process_that_hangs_does_not_hold_up_the_rest() {
    let (port, plain) = (free_port(), free_port());
    let authority = Authority::new();
    let more = format!("server {{ listen 127.0.0.1:{plain}; }}");
    let site = Site::new("daemon off; ssl_key_isolation on;", &tls_server(port, &more));
    site.write("html/index.html", "plain");
    authority.put(&site, "a", "p256");
    let running = site.start();
    let client = Client::new(port, &authority, true);
    wait("an answer", || client.get("a"));
    let holder = key_process(running.pid());
    stop(holder);
    assert!(client.get("a").is_err());
    assert_eq!(get(plain).expect("an answer").1, "plain");
    assert!(client.get("a").is_err());
    assert!(site.log().contains("the key process made no signature"), "{}", site.log());
    signal(holder, "CONT");
    wait("an answer", || client.get("a"));
    running.quit();
}

#[test]
fn a_new_binary_has_a_key_process_of_its_own() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new("ssl_key_isolation on;", &tls_server(port, ""));
    authority.put(&site, "a", "p256");
    assert!(site.run(&[]).status.success());
    let old = wait("the pid file", || site.pid().ok_or("none"));
    let client = Client::new(port, &authority, true);
    wait("an answer", || client.get("a"));
    let first = key_process(old);
    let handshakes = Handshakes::start(port, &authority, "a");
    signal(old, "USR2");
    let new = wait("the new master", || site.pid().filter(|pid| *pid != old).ok_or_else(|| site.log()));
    let second = key_process(new);
    worker(new);
    handshakes.pass(5);
    signal(old, "QUIT");
    wait("the end of the old processes", || if alive(old) || alive(first) { Err("alive") } else { Ok(()) });
    handshakes.pass(5);
    assert_eq!(handshakes.end(), Vec::<String>::new(), "{}", site.log());
    signal(new, "QUIT");
    wait("the end of the new processes", || if alive(new) || alive(second) { Err("alive") } else { Ok(()) });
    site.assert_no_alerts();
}

#[test]
fn a_process_without_a_master_has_a_key_process() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new("daemon off; master_process off; ssl_key_isolation on;", &tls_server(port, ""));
    let key = authority.put(&site, "a", "p256");
    let running = site.start();
    let client = Client::new(port, &authority, true);
    wait("an answer", || client.get("a"));
    let holder = key_process(running.pid());
    if let Some(found) = memory_has(running.pid(), &forms(&key)) {
        assert!(found.iter().all(|count| *count == 0), "{found:?}");
    }
    authority.put(&site, "a", "rsa");
    running.signal("HUP");
    site.wait_for_log("is no longer used", 1);
    client.get("a").expect("an answer");
    running.quit();
    wait("the end of the key process", || if alive(holder) { Err("alive") } else { Ok(()) });
    site.assert_no_alerts();
}

#[test]
fn the_test_of_a_configuration_tells_what_cannot_be_isolated() {
    let port = free_port();
    let authority = Authority::new();
    let site = Site::new("ssl_key_isolation on;", &tls_server(port, ""));
    authority.put(&site, "a", "p256");
    let explained = text(&site.run(&["-t", "--explain"]).stderr);
    for part in ["conf/a.key (private keys)", "the key process may sign", "open no file"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let server = |tls: &str| format!("http {{ server {{ listen 127.0.0.1:{port} ssl; {tls} }} }}");
    site.write("conf/words", "secret");
    for (tls, words) in [
        ("ssl_certificate a.crt; ssl_certificate_key data:$arg_k;", "requires keys in files"),
        ("ssl_certificate a.crt; ssl_certificate_key \"data:x\";", "requires keys in files"),
        (
            "ssl_certificate $ssl_server_name.crt; ssl_certificate_key $ssl_server_name.key; ssl_password_file words;",
            "requires certificates and keys without variables",
        ),
        ("ssl_certificate a.crt; ssl_certificate_key engine:x;", "are not available"),
        ("ssl_certificate a.crt; ssl_certificate_key none.key;", "no such file"),
    ] {
        site.configure("ssl_key_isolation on;", &server(tls));
        let output = site.run(&["-t"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{tls}: {said}");
        // A start says the same.
        let said = text(&site.run(&[]).stderr);
        assert!(said.contains(words), "{tls}: {said}");
    }
}

/// A site that serves the folder of its keys by mistake, with workers that stay root: the kernel keeps them from the
/// keys alone.
#[test]
fn workers_cannot_read_the_files() {
    if sandbox::landlock_version() < sandbox::LANDLOCK_FILES {
        testkit::missing_means("Landlock of this kernel has no rules for files");
        return;
    }
    let port = free_port();
    let authority = Authority::new();
    let server = |keys: &str| {
        format!(
            "http {{ server {{ listen 127.0.0.1:{port}; location /conf/ {{ alias conf/; }}
             location /certs/ {{ alias conf/certs/; }} }} {keys} }}"
        )
    };
    let tls = format!(
        "server {{ listen 127.0.0.1:{} ssl; ssl_certificate a.crt; ssl_certificate_key a.key; }}
         server {{ listen 127.0.0.1:{} ssl; ssl_certificate certs/$ssl_server_name.crt;
         ssl_certificate_key certs/$ssl_server_name.key; }}",
        free_port(),
        free_port()
    );
    let user = if rustix::process::geteuid().is_root() { "user root root;" } else { "" };
    for (sandbox, isolation) in [("on", "on"), ("strict", "on"), ("on", "off")] {
        let main = format!("daemon off; ssl_key_isolation {isolation}; sandbox {sandbox}; {user}");
        let site = Site::new(&main, &server(&tls));
        std::fs::create_dir_all(site.path("conf/certs")).expect("a folder");
        authority.put(&site, "a", "p256");
        authority.put(&site, "certs/b", "p256");
        site.write("html/index.html", "served");
        let running = site.start();
        wait("an answer", || match get(port) {
            Ok((200, body)) if body == "served" => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let ask = |path: &str| {
            let mut client = support::client::Client::connect(port).expect("a connection");
            client.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).expect("an answer")
        };
        for path in ["/conf/a.key", "/certs/b.key"] {
            let (status, body) = ask(path);
            let expected = if isolation == "on" { 403 } else { 200 };
            assert_eq!(status, expected, "{sandbox} {path}: {body}");
        }
        running.quit();
    }
}
