//! auth_failure_limit: simultaneous guesses are no more than sequential ones, and simultaneous logins all succeed.

use crate::support;

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use support::client::Client;
use support::origin::Origin;
use support::{Site, free_port, wait};

/// Requests at a time; the limit lets three fail.
const AT_ONCE: usize = 30;

/// Sends requests at once and returns their statuses, sorted. `between` runs after all are sent.
fn statuses(port: u16, path: &str, credentials: &str, between: impl FnOnce()) -> Vec<u16> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {credentials}\r\nConnection: close\r\n\r\n");
    let send = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        stream.write_all(request.as_bytes()).expect("sent");
        Client::of(stream).expect("a client")
    };
    let clients: Vec<Client> = (0..AT_ONCE).map(|_| send()).collect();
    between();
    let mut all: Vec<u16> = clients.into_iter().map(|mut client| client.ask("").expect("an answer").0).collect();
    all.sort_unstable();
    all
}

/// Three failures, and refusals of all others.
fn limited() -> Vec<u16> {
    [vec![401; 3], vec![429; AT_ONCE - 3]].concat()
}

#[test]
fn simultaneous_guesses_are_no_more_than_sequential_ones() {
    let judged = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (its_judged, its_gate) = (judged.clone(), gate.clone());
    let origin = Origin::answering(move |request| {
        its_judged.fetch_add(1, Ordering::SeqCst);
        let open = its_gate.0.lock().expect("the gate");
        drop(its_gate.1.wait_while(open, |open| !*open).expect("the gate"));
        let status = if request.contains("right") { "204 Yes" } else { "401 No\r\nContent-Length: 0" };
        format!("HTTP/1.1 {status}\r\n\r\n").into_bytes()
    });
    let port = free_port();
    let site = Site::new(
        "daemon off; worker_processes 2;",
        &format!(
            "http {{ auth_failure_limit_zone $arg_k zone=logins:32k rate=1r/m;
             server {{ listen 127.0.0.1:{port}; auth_failure_limit zone=logins burst=2;
             location = /free {{ auth_failure_limit off; return 204; }}
             location = /ask {{ internal; proxy_pass http://127.0.0.1:{origin}; proxy_set_header X-Login $http_authorization; }}
             location /request {{ auth_request /ask; try_files /page =404; }}
             location /slow {{ auth_basic b; auth_basic_user_file slow; try_files /page =404; }}
             location /fast {{ auth_basic b; auth_basic_user_file fast; try_files /page =404; }}
             location /either {{ satisfy any; auth_basic b; auth_basic_user_file fast; auth_request /ask;
                 try_files /page =404; }} }} }}",
            origin = origin.port
        ),
    );
    site.write("html/page", "page");
    site.write("conf/slow", "joe:$2y$04$sbeyZ3bzbbTtbJ2Sb/cQJOkbyt2Z0pGw2.8BAoyaEhCKpWBFBewTi\n");
    site.write("conf/fast", "joe:{PLAIN}secret\n");
    let running = site.start();
    let open = |is_open: bool| {
        *gate.0.lock().expect("the gate") = is_open;
        gate.1.notify_all();
    };
    let shut_for = |guesses: usize| {
        let (gate, judged) = (gate.clone(), judged.clone());
        move || {
            let free = || Client::connect(port).and_then(|mut c| c.ask("GET /free HTTP/1.1\r\nHost: a\r\n\r\n"));
            wait("guesses at the origin", || {
                // Each turn of a worker that answers another request has read all guesses sent before.
                assert_eq!(free().map(|(status, _)| status), Ok(204));
                (judged.load(Ordering::SeqCst) >= guesses).then_some(()).ok_or("none")
            });
            for _ in 0..20 {
                assert_eq!(free().map(|(status, _)| status), Ok(204));
            }
            assert_eq!(judged.swap(0, Ordering::SeqCst), guesses);
            *gate.0.lock().expect("the gate") = true;
            gate.1.notify_all();
        }
    };
    assert_eq!(statuses(port, "/request?k=1", "Bearer wrong", shut_for(3)), limited());
    open(false);
    assert_eq!(statuses(port, "/either?k=2", "Basic am9lOndyb25n", shut_for(3)), limited());
    assert_eq!(statuses(port, "/request?k=3", "Bearer right", || ()), vec![200; AT_ONCE]);
    assert_eq!(statuses(port, "/slow?k=4", "Basic am9lOndyb25n", || ()), limited());
    assert_eq!(statuses(port, "/slow?k=5", "Basic am9lOnNlY3JldA==", || ()), vec![200; AT_ONCE]);
    assert_eq!(statuses(port, "/fast?k=6", "Basic am9lOndyb25n", || ()), limited());
    assert_eq!(statuses(port, "/fast?k=7", "Basic am9lOnNlY3JldA==", || ()), vec![200; AT_ONCE]);
    running.quit();
    site.assert_no_alerts();
}

/// A pipe without a writer, where a file of users should be: opening it would hold up the thread.
#[test]
fn a_pipe_in_place_of_a_user_file_holds_up_no_thread() {
    let port = free_port();
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ server {{ listen 127.0.0.1:{port}; location / {{ return 200 x; }}
             location /secret {{ auth_basic a; auth_basic_user_file users; }} }} }}"
        ),
    );
    let made = std::process::Command::new("mkfifo").arg(site.path("conf/users")).status().expect("mkfifo runs");
    assert!(made.success());
    let running = site.start();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a limit of a failed test");
    let ask = "GET /secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Basic YTpi\r\n\r\n";
    std::io::Write::write_all(&mut stream, ask.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 500 "), "{}", String::from_utf8_lossy(&answer));
    site.wait_for_log("it is not a regular file", 1);
    running.quit();
}
