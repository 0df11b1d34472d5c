//! auth_jwt with keys that change, fail or are slow; key-value zones over reloads and restarts.

use crate::support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Site, free_port, wait};

/// Key sets, and tokens that were signed with their keys.
const KEYS_ONE: &str = r#"{"keys":[{"k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY","kid":"one","kty":"oct"}]}"#;
const KEYS_TWO: &str = r#"{"keys":[{"k":"YW5vdGhlciBzZWNyZXQsIGFub3RoZXIgc2VjcmV0ISE","kid":"two","kty":"oct"}]}"#;
const ONE: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJzdWIiOiJqb2UiLCJuIjo3LCJhZG1pbiI6ZmFsc2UsImdyb3VwcyI6WyJhIiwiYiJdLCJpbmZvIjp7ImUtbWFpbCI6ImpvZUBleGFtcGxlLmNvbSIsImpvYiB0aXRsZSI6IngifSwidXNlcklkIjoiVTEifQ.lmJNxIZzD2QCFjnigjt9mLYaT3rKjqmbl86uO4VM6VE";
const TWO: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6InR3byJ9.eyJzdWIiOiJhbm4iLCJpc3MiOiJvdGhlciJ9.nlgxLKdGE63SLe4ltcnQYV25TbDG_DoWH65QZ5-SJmw";

fn site(port: u16, origin: u16, locations: &str) -> Site {
    let http = format!(
        "http {{ access_log off; proxy_temp_path proxy; client_body_temp_path body;
            server {{ listen 127.0.0.1:{port}; root .;
                location = /jwks {{ internal; proxy_pass http://127.0.0.1:{origin}/jwks; }}
                {locations}
            }} }}"
    );
    let site = Site::new("daemon off; worker_processes 2;", &http);
    site.write("index.html", "page");
    site.write("other", "page");
    site
}

/// Sends a request on a new connection, so that the kernel selects the thread.
fn ask(port: u16, path: &str, token: &str) -> u16 {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    Client::connect(port).and_then(|mut client| client.ask(&request)).expect("answered").0
}

#[test]
fn keys_rotate_vanish_lie_and_are_huge() {
    let port = free_port();
    let answer = Arc::new(Mutex::new(ok(KEYS_ONE)));
    let origin = Origin::new({
        let answer = answer.clone();
        // The end of the connection ends an answer that is too short.
        move |mut talk| {
            if talk.request().is_some() {
                let bytes = answer.lock().expect("not poisoned").clone();
                talk.send(&bytes);
            }
        }
    });
    let locations = "location / { auth_jwt r; auth_jwt_key_request /jwks; }";
    let site = site(port, origin.port, locations);
    let running = site.start();
    let set = |bytes: Vec<u8>| *answer.lock().expect("not poisoned") = bytes;
    assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (200, 401));
    set(ok(KEYS_TWO));
    // The verified token of the old key is not remembered for the new ones.
    assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (401, 200));
    let status = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes();
    let huge = format!("{{\"keys\":[{}]}}", " ".repeat(3 << 20));
    let lies = [
        Vec::new(),
        status("404 Not Found"),
        status("304 Not Modified"),
        status("204 No Content"),
        status("503 Service Unavailable"),
        ok("<html>keys</html>"),
        ok("{\"keys\":{\"kty\":\"oct\"}}"),
        ok("{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"keys\":".to_vec(),
        ok(&huge),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{huge}\r\n0\r\n\r\n", huge.len())
            .into_bytes(),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let shown = String::from_utf8_lossy(&lie[..lie.len().min(40)]).into_owned();
        set(lie);
        assert_eq!(ask(port, "/", TWO), 500, "{number}: {shown}");
    }
    set(ok("{\"keys\":[]}"));
    assert_eq!(ask(port, "/", TWO), 401, "an empty set has no key");
    set(ok(KEYS_TWO));
    assert_eq!(ask(port, "/", TWO), 200);
    for token in [ONE, TWO] {
        let signature = token.rsplit('.').next().expect("three parts");
        assert!(!site.log().contains(signature), "a token is in the log");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn requests_that_need_the_same_keys_fetch_them_once() {
    let port = free_port();
    let (asked, released) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let origin = Origin::answering({
        let (asked, released) = (asked.clone(), released.clone());
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            wait("the release", || if released.load(Ordering::SeqCst) { Ok(()) } else { Err("held") });
            ok(KEYS_ONE)
        }
    });
    let locations = "auth_jwt_key_request /jwks; auth_jwt_key_cache 1h;
        location / { auth_jwt r; } location /other { auth_jwt r; auth_jwt_leeway 5s; }";
    let site = site(port, origin.port, locations);
    let running = site.start();
    let send = |path: &str| {
        let mut client = Client::connect(port).expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ONE}\r\n\r\n");
        std::thread::spawn(move || client.ask(&request).expect("answered").0)
    };
    let mut clients: Vec<_> = (0..8).map(|n| send(if n % 2 == 0 { "/" } else { "/other" })).collect();
    wait("the fetch", || if asked.load(Ordering::SeqCst) > 0 { Ok(()) } else { Err("nothing was asked") });
    // Some requests arrive during the fetch, some perhaps later.
    clients.extend((0..8).map(|_| send("/")));
    released.store(true, Ordering::SeqCst);
    for client in clients {
        assert_eq!(client.join().expect("no panic"), 200);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_client_that_leaves_does_not_hold_up_the_others() {
    let port = free_port();
    let asked = Arc::new(AtomicUsize::new(0));
    let origin = Origin::new({
        let asked = asked.clone();
        move |mut talk| {
            while talk.request().is_some() {
                // The first fetch never ends.
                if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                    talk.hang();
                    return;
                }
                talk.send(&ok(KEYS_ONE));
            }
        }
    });
    let locations = "location / { auth_jwt r; auth_jwt_key_request /jwks; auth_jwt_key_cache 1h; }";
    let site = site(port, origin.port, locations);
    let running = site.start();
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ONE}\r\n\r\n");
    let mut first = Client::connect(port).expect("connected").into_inner();
    std::io::Write::write_all(&mut first, request.as_bytes()).expect("sent");
    wait("the fetch", || if asked.load(Ordering::SeqCst) == 1 { Ok(()) } else { Err("nothing was asked") });
    let mut second = Client::connect(port).expect("connected");
    let second = std::thread::spawn(move || second.ask(&request).expect("answered").0);
    drop(first);
    assert_eq!(second.join().expect("no panic"), 200);
    running.quit();
    site.assert_no_alerts();
}

/// An unknown key fetches the keys once, for all tokens that need it; tokens of known keys do not wait. Kept keys outlive their source.
#[test]
fn kept_keys_are_fetched_again_for_an_unknown_key() {
    let port = free_port();
    let (answer, asked) = (Arc::new(Mutex::new(ok(KEYS_ONE))), Arc::new(AtomicUsize::new(0)));
    let held = Arc::new(AtomicBool::new(false));
    let origin = Origin::answering({
        let (answer, asked, held) = (answer.clone(), asked.clone(), held.clone());
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            wait("the release", || if held.load(Ordering::SeqCst) { Err("held") } else { Ok(()) });
            answer.lock().expect("not poisoned").clone()
        }
    });
    let locations = "location / { auth_jwt r; auth_jwt_key_request /jwks; auth_jwt_key_cache 1h; }";
    let site = site(port, origin.port, locations);
    let running = site.start();
    assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (200, 401));
    // Within ten seconds of the last fetch no other one follows.
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    *answer.lock().expect("not poisoned") = ok(KEYS_TWO);
    held.store(true, Ordering::SeqCst);
    let first = std::thread::spawn(move || {
        wait("the new key", || match ask(port, "/", TWO) {
            200 => Ok(()),
            other => Err(other),
        });
    });
    wait("the fetch", || if asked.load(Ordering::SeqCst) == 2 { Ok(()) } else { Err("not yet") });
    let others: Vec<_> = (0..4).map(|_| std::thread::spawn(move || ask(port, "/", TWO))).collect();
    for _ in 0..8 {
        assert_eq!(ask(port, "/", ONE), 200, "a token of a known key does not wait");
    }
    held.store(false, Ordering::SeqCst);
    first.join().expect("no panic");
    for other in others {
        assert_eq!(other.join().expect("no panic"), 200, "a token whose key is being fetched");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(ask(port, "/", ONE), 401);
    // The source vanishes: its keys serve, and a token of an unknown key asks for others without an effect on them.
    *answer.lock().expect("not poisoned") = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec();
    wait("a fetch in vain", || {
        assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (401, 200));
        if asked.load(Ordering::SeqCst) == 3 { Ok(()) } else { Err("not yet") }
    });
    assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (401, 200));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    running.quit();
    site.assert_no_alerts();
}

/// Keys whose source has vanished serve until the end of `auth_jwt_key_cache`, and not longer.
#[test]
fn kept_keys_end_with_their_time() {
    let port = free_port();
    let answer = Arc::new(Mutex::new(ok(KEYS_ONE)));
    let origin = Origin::answering({
        let answer = answer.clone();
        move |_| answer.lock().expect("not poisoned").clone()
    });
    let locations = "location / { auth_jwt r; auth_jwt_key_request /jwks; auth_jwt_key_cache 1s; }";
    let site = site(port, origin.port, locations);
    let running = site.start();
    let becomes = |wanted: u16, not: u16| {
        wait("the status", || match ask(port, "/", ONE) {
            status if status == wanted => Ok(()),
            status => {
                assert_eq!(status, not);
                Err(status)
            }
        });
    };
    becomes(200, 200);
    *answer.lock().expect("not poisoned") = Vec::new();
    becomes(500, 200);
    *answer.lock().expect("not poisoned") = ok(KEYS_ONE);
    becomes(200, 500);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_key_file_is_read_again_when_it_changes() {
    let port = free_port();
    let site = site(port, 1, "location / { auth_jwt r; auth_jwt_key_file keys.json; }");
    site.write("keys.json", KEYS_ONE);
    let running = site.start();
    assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (200, 401));
    site.write("new.json", KEYS_TWO);
    std::fs::rename(site.path("new.json"), site.path("keys.json")).expect("renamed");
    assert_eq!((ask(port, "/", ONE), ask(port, "/", TWO)), (401, 200));
    std::fs::remove_file(site.path("keys.json")).expect("removed");
    assert_eq!(ask(port, "/", TWO), 500);
    site.write("keys.json", KEYS_ONE);
    assert_eq!(ask(port, "/", ONE), 200);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn pairs_survive_reloads_and_come_back_after_a_restart() {
    let port = free_port();
    let http = |answer: &str| {
        format!(
            "http {{ access_log off; keyval_zone zone=one:32k state=one.keyval; keyval $arg_k $v zone=one;
                server {{ listen 127.0.0.1:{port}; return 200 \"{answer} $v\"; }} }}"
        )
    };
    let site = Site::new("daemon off;", &http("old"));
    site.write("one.keyval", r#"{"a":"1","b":"2"}"#);
    let show = |key: &str| {
        let request = format!("GET /?k={key} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        Client::connect(port).and_then(|mut client| client.ask(&request)).expect("answered").1
    };
    let running = site.start();
    assert_eq!((show("a"), show("c")), ("old 1".to_string(), "old ".to_string()));
    // The zone's own pairs count, not the changed file.
    site.write("one.keyval", r#"{"c":"3"}"#);
    site.configure("daemon off;", &http("new"));
    running.signal("HUP");
    wait("the new configuration", || match show("b") {
        body if body == "new 2" => Ok(()),
        body => Err(body),
    });
    assert_eq!((show("a"), show("c")), ("new 1".to_string(), "new ".to_string()));
    // A file that cannot be read prevents a reload.
    site.write("one.keyval", "{");
    running.signal("HUP");
    site.wait_for_log("invalid state file", 1);
    assert_eq!(show("a"), "new 1");
    site.write("one.keyval", r#"{"c":"3"}"#);
    running.quit();
    let running = site.start();
    assert_eq!((show("a"), show("c")), ("new ".to_string(), "new 3".to_string()));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn an_expired_pair_leaves_the_file() {
    let port = free_port();
    let http = format!(
        "http {{ keyval_zone zone=one:32k state=one.keyval timeout=1h; keyval $arg_k $v zone=one;
            server {{ listen 127.0.0.1:{port}; }} }}"
    );
    // The worker's account must be able to make files beside the state file.
    let site = Site::new("daemon off; user root;", &http);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
    let (soon, late) = (now + 2_000, now + 3_600_000);
    let pairs = format!(r#"{{"a":{{"value":"1","expire":{soon}}},"b":{{"value":"2","expire":{late}}}}}"#);
    site.write("one.keyval", &pairs);
    let running = site.start();
    wait("the change of the file", || match site.read("one.keyval") {
        text if text.contains("\"a\"") => Err(text),
        _ => Ok(()),
    });
    assert!(!site.log().contains("cannot be kept"), "{}", site.log());
    assert_eq!(site.read("one.keyval"), format!("{{\n\"b\":{{\"value\":\"2\",\"expire\":{late}}}\n}}\n"));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_folder_that_the_worker_may_not_write_to_is_told_at_the_start() {
    if !rustix::process::geteuid().is_root() {
        testkit::missing_means("only root can give privileges up");
        return;
    }
    let port = free_port();
    let http = format!("http {{ keyval_zone zone=one:32k state=one.keyval; server {{ listen 127.0.0.1:{port}; }} }}");
    let site = Site::new("daemon off;", &http);
    let running = site.start();
    site.wait_for_log("failed (13: Permission denied); changes of keyval_zone \"one\" cannot be kept", 1);
    running.quit();
}

#[test]
fn tokens_without_keys_or_sharing_are_refused_before_the_start() {
    let site = Site::new(
        "daemon off;",
        "http {
            keyval_zone zone=one:32k timeout=1h sync;
            server { listen 127.0.0.1:1; auth_jwt r;
                location /none { }
                location /some { auth_jwt_key_file keys.json; }
                location /lost { auth_jwt_key_file lost.json; }
            }
        }",
    );
    site.write("keys.json", KEYS_ONE);
    let tested = site.run(&["-t"]);
    let said = String::from_utf8_lossy(&tested.stderr).into_owned();
    assert!(tested.status.success(), "{said}");
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("[warn]")).collect();
    assert_eq!(warnings.len(), 3, "{said}");
    for words in [
        "keyval_zone \"one\": \"sync\" has no effect without \"shared_store\"",
        "lost.json\" failed (2:",
        "location \"/none\" has \"auth_jwt\" and no keys",
    ] {
        assert!(warnings.iter().any(|line| line.contains(words)), "{words}: {said}");
    }
}
