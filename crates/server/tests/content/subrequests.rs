//! Subrequests as the logs and the connection see them.

use crate::support;

use support::client::Client;
use support::{Site, free_port, wait};

fn site(port: u16, locations: &str) -> Site {
    let http = format!(
        "http {{
            log_format facts '$uri $status $request_method $body_bytes_sent $request_completion|';
            access_log logs/access.log facts;
            client_body_temp_path body; proxy_temp_path proxy;
            default_type text/html;
            server {{ listen 127.0.0.1:{port}; {locations} }}
        }}"
    );
    Site::new("daemon off;", &http)
}

fn lines(site: &Site) -> Vec<String> {
    site.read("logs/access.log").lines().map(str::to_string).collect()
}

#[test]
fn a_subrequest_is_logged_where_that_is_wanted() {
    let port = free_port();
    let site = site(
        port,
        "location / { ssi on; return 200 '<!--#include virtual=\"/quiet\" --><!--#include virtual=\"/told\" -->'; }
         location /quiet { return 200 quiet; }
         location /told { log_subrequest on; return 200 told; }",
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    assert_eq!(client.get().expect("answered"), (200, "quiettold".into()));
    wait("the lines", || if lines(&site).len() >= 2 { Ok(()) } else { Err(site.log()) });
    assert_eq!(lines(&site), ["/told 200 GET 4 |", "/ 200 GET 24 OK|"]);
    running.quit();
}

#[test]
fn the_action_after_a_response_comes_before_its_line_and_the_next_request() {
    let port = free_port();
    let site = site(
        port,
        "location / { return 200 answer; post_action /after; }
         location /named { return 200 answer; post_action @after; }
         location /after { log_subrequest on; proxy_pass http://127.0.0.1:PORT/told?$request_completion; }
         location @after { return 200 unseen; }
         location /told { access_log logs/told.log facts; return 200 'for nobody'; }"
            .replace("PORT", &port.to_string())
            .as_str(),
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    for path in ["/", "/named", "/"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.ask(&request).expect("answered"), (200, "answer".into()));
    }
    wait("the lines", || if lines(&site).len() >= 3 { Ok(()) } else { Err(site.log()) });
    assert_eq!(lines(&site), ["/after 200 GET 6 OK|", "/named 200 GET 6 OK|", "/after 200 GET 6 OK|"]);
    assert_eq!(site.read("logs/told.log").lines().count(), 2);
    running.quit();
}

#[test]
fn a_mirror_gets_the_body_and_the_next_request_waits_for_it() {
    let port = free_port();
    let site = site(
        port,
        "location / { mirror /copy; proxy_pass http://127.0.0.1:PORT/answer; }
         location /bare { mirror /copy; mirror_request_body off; error_page 404 =200 /answer; }
         location /copy { internal; log_subrequest on; access_log logs/copy.log facts;
             proxy_pass http://127.0.0.1:PORT/received; }
         location /answer { access_log off; return 200 answer; }
         location /received { access_log logs/received.log body; proxy_pass http://127.0.0.1:PORT/end; }
         location /end { access_log off; return 200; }"
            .replace("PORT", &port.to_string())
            .as_str(),
    );
    let conf = site.read("conf/nginx.conf");
    site.write(
        "conf/nginx.conf",
        &conf.replace(
            "default_type",
            "log_format body '$request_method $http_content_length $request_body|';\n default_type",
        ),
    );
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.ask(&post("/")).expect("answered"), (200, "answer".into()));
    assert_eq!(client.ask(&post("/bare")).expect("answered"), (200, "answer".into()));
    wait("the lines", || if site.read("logs/received.log").lines().count() >= 2 { Ok(()) } else { Err(site.log()) });
    wait("the main line", || if lines(&site).len() == 1 { Ok(()) } else { Err(site.log()) });
    wait("the copies", || if site.read("logs/copy.log").lines().count() == 2 { Ok(()) } else { Err(site.log()) });
    assert_eq!(site.read("logs/received.log"), "POST 4 body|\nPOST - -|\n");
    running.quit();
}

#[test]
fn one_request_makes_so_many_subrequests() {
    let port = free_port();
    let site = site(port, "location / { ssi on; root html; } location /c { return 200 Q; }");
    let includes = |of: &str| format!("<!--#include virtual=\"{of}\" -->").repeat(260);
    site.write("html/a.html", &includes("/b.html"));
    site.write("html/b.html", &includes("/c"));
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let request = "GET /a.html HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let (status, body) = client.ask(request).expect("answered");
    // 260 pages of 260 would be 67,860; where no more are made, the page says that something is wrong.
    let (made, failed) = (body.matches('Q').count(), body.matches("[an error").count());
    assert_eq!(status, 200);
    assert!((63_000..64_000).contains(&made) && failed > 0, "{made} made, {failed} failed");
    assert!(site.log().contains("too many subrequests while processing"), "{}", site.log());
    running.quit();
}

#[test]
fn a_variable_that_contains_itself_does_not_double_for_long() {
    let port = free_port();
    let site = site(port, "location / { ssi on; root html; }");
    let double = "<!--#set var=\"a\" value=\"$a$a\" -->".repeat(20);
    site.write("html/page.html", &format!("<!--#set var=\"a\" value=\"{}\" -->{double}.", "x".repeat(100)));
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let request = "GET /page.html HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let (status, body) = client.ask(request).expect("answered");
    // 100 octets exceed a megabyte when they have doubled 14 times.
    assert_eq!((status, body.matches("[an error").count(), body.ends_with('.')), (200, 7, true), "{body}");
    assert!(site.log().contains("too much text in variables of an SSI command"), "{}", site.log());
    running.quit();
}

#[test]
fn so_many_includes_are_under_way_together() {
    use std::io::{BufRead, BufReader, Write};
    const TOGETHER: usize = 64;
    const ALL: usize = 200;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let origin = listener.local_addr().expect("address").port();
    // Answers one when it has so many questions, or the last ones; tells the most that it had.
    let asked = std::thread::spawn(move || {
        let (mut waiting, mut most) = (std::collections::VecDeque::new(), 0);
        for (n, stream) in listener.incoming().flatten().take(ALL).enumerate() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).expect("a request");
            }
            waiting.push_back(reader.into_inner());
            most = most.max(waiting.len());
            while waiting.len() >= TOGETHER || n + 1 == ALL {
                let Some(mut first) = waiting.pop_front() else { break };
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
                first.write_all(answer.as_bytes()).expect("answered");
            }
        }
        most
    });
    let port = free_port();
    let pass = format!("location / {{ ssi on; root html; }} location /o {{ proxy_pass http://127.0.0.1:{origin}; }}");
    let site = site(port, &pass);
    site.write("html/a.html", &"<!--#include virtual=\"/o\" -->".repeat(ALL));
    let running = site.start();
    let mut client = Client::connect(port).expect("connected");
    let answer = client.ask("GET /a.html HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("answered");
    assert_eq!(answer, (200, "x".repeat(ALL)));
    assert_eq!(asked.join().expect("the origin ended"), TOGETHER);
    running.quit();
    site.assert_no_alerts();
}
