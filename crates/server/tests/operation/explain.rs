//! `tidegate explain URL` agrees with the server: equal configurations are served and explained, and status, fields and
//! steps are compared.

use crate::support;

use serde_json::Value;
use std::io::{Read, Write};
use support::{BINARY, Site, free_port, text};

/// Every location names itself in X-Loc, so that a response shows the selected location.
const HTTP: &str = r#"
    map $http_user_agent $robot { default 0; ~Bot 1; }
    limit_req_zone $binary_remote_addr zone=z:1m rate=1000r/s;
    server {
        listen 127.0.0.1:PORT default_server;
        tidegate_explain 127.0.0.1;
        server_name first.example;
        root html;
        add_header X-Loc server-1 always;
        rewrite ^/moved/(.*)$ /files/$1 last;
        location / { add_header X-Loc root always; try_files $uri $uri/ @fallback; }
        location @fallback { add_header X-Loc named always; return 404 "nothing"; }
        location = /exact { add_header X-Loc exact always; return 200 "exact"; }
        location ^~ /static/ { add_header X-Loc static always; }
        location ~ \.txt$ { add_header X-Loc txt always; }
        location ~* \.(png|JPG)$ { add_header X-Loc image always; return 200; }
        location /files/ { add_header X-Loc files always; limit_req zone=z burst=1000 nodelay; index page.html; }
        location /private/ { internal; add_header X-Loc private always; }
        location /closed/ { deny all; add_header X-Loc closed always; error_page 403 = /exact; }
        location /outer/ {
            add_header X-Loc outer always;
            location /outer/inner/ { add_header X-Loc inner always; return 204; }
            location ~ x$ { add_header X-Loc inner-regex always; return 204; }
        }
        location /if { add_header X-Loc if always; if ($arg_a = 1) { add_header X-Loc if-holds always; return 202; } return 203; }
        location /loop { rewrite ^ /loop last; }
        location /go { return 302 /there?$args; }
        location /robots { if ($robot) { return 403; } return 200 "man"; }
        location /slashed/ { proxy_pass http://127.0.0.1:1/; }
    }
    server { listen 127.0.0.1:PORT; server_name *.wild.example; tidegate_explain 127.0.0.1; add_header X-Loc server-2 always; return 200 two; }
    server { listen 127.0.0.1:PORT; server_name ~^x(?<n>\d+)\.; tidegate_explain 127.0.0.1; add_header X-Loc server-3 always; return 200 $n; }
"#;

const REQUESTS: &[(&str, &str, &str, &[&str])] = &[
    ("GET", "first.example", "/", &[]),
    ("GET", "first.example", "/none", &[]),
    ("GET", "first.example", "/exact", &[]),
    ("GET", "first.example", "/exact?a=b", &[]),
    ("HEAD", "first.example", "/exact", &[]),
    ("GET", "first.example", "/exac%74", &[]),
    ("GET", "first.example", "/static/a.txt", &[]),
    ("GET", "first.example", "/static", &[]),
    ("GET", "first.example", "/a.txt", &[]),
    ("GET", "first.example", "/b.txt", &[]),
    ("POST", "first.example", "/a.txt", &[]),
    ("GET", "first.example", "/x/y.PNG", &[]),
    ("GET", "first.example", "/x/y.jpg", &[]),
    ("GET", "first.example", "/files/", &[]),
    ("GET", "first.example", "/files", &[]),
    ("GET", "first.example", "/moved/page.html", &[]),
    ("GET", "first.example", "/moved/none", &[]),
    ("GET", "first.example", "/private/x", &[]),
    ("GET", "first.example", "/closed/x", &[]),
    ("GET", "first.example", "/outer/x", &[]),
    ("GET", "first.example", "/outer/inner/y", &[]),
    ("GET", "first.example", "/outer/y", &[]),
    ("GET", "first.example", "/if?a=1", &[]),
    ("GET", "first.example", "/if?a=2", &[]),
    ("GET", "first.example", "/loop", &[]),
    ("GET", "first.example", "/go?x=y", &[]),
    ("GET", "first.example", "/robots", &["User-Agent: SomeBot/1"]),
    ("GET", "first.example", "/robots", &["User-Agent: Mozilla"]),
    ("GET", "first.example", "/slashed", &[]),
    ("GET", "first.example", "/a/../exact", &[]),
    ("GET", "first.example", "/a//b/./c.txt", &[]),
    ("GET", "first.example", "/%zz", &[]),
    ("GET", "unknown.example", "/exact", &[]),
    ("GET", "a.wild.example", "/exact", &[]),
    ("GET", "x12.example", "/", &[]),
    ("GET", "x12.example", "/anything", &[]),
    ("GET", "first.example", "/a.txt", &["If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT"]),
    ("GET", "first.example", "/a.txt", &["Range: bytes=1-2"]),
];

fn site() -> (Site, u16) {
    let port = free_port();
    let site = Site::new("daemon off;", &format!("http {{ {} }}", HTTP.replace("PORT", &port.to_string())));
    for folder in ["html/static", "html/files"] {
        std::fs::create_dir_all(site.path(folder)).expect("a directory");
    }
    for (name, content) in
        [("index.html", "index"), ("a.txt", "text a"), ("static/a.txt", "static"), ("files/page.html", "page")]
    {
        site.write(&format!("html/{name}"), content);
    }
    (site, port)
}

fn explain(site: &Site, arguments: &[String]) -> Value {
    let mut command = std::process::Command::new(BINARY);
    command.arg("explain").args(arguments).arg("--json").arg("-p").arg(&site.dir).arg("-c").arg("conf/nginx.conf");
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Opens a new connection.
fn send(port: u16, request: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    text(&answer)
}

fn field<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn explanations_agree_with_the_server() {
    let (site, port) = site();
    let running = site.start();
    for (method, host, target, more) in REQUESTS {
        let ask = |extra: &str| {
            let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
            let request =
                format!("{method} {target} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}{extra}Connection: close\r\n\r\n");
            send(port, &request)
        };
        let answer = ask("");
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        let mut arguments = vec![format!("http://{host}:{port}{target}"), "-X".into(), (*method).to_string()];
        for line in *more {
            arguments.extend(["-H".into(), (*line).to_string()]);
        }
        let told = explain(&site, &arguments);
        let shown = format!("{method} {host} {target}: {answer}\n{told:#}");
        let status = head.split(' ').nth(1).and_then(|code| code.parse::<u64>().ok());
        assert_eq!(told["status"].as_u64(), status, "{shown}");
        for name in ["X-Loc", "Location", "Content-Type", "Content-Length", "Content-Range", "ETag"] {
            let own: Vec<&str> = told["headers"]
                .as_array()
                .expect("fields")
                .iter()
                .filter(|pair| pair[0].as_str().is_some_and(|own| own.eq_ignore_ascii_case(name)))
                .filter_map(|pair| pair[1].as_str())
                .collect();
            assert_eq!(own, field(head, name), "{name} of {shown}");
        }
        // A live request with the header took the same steps.
        let asked = ask("X-Tidegate-Explain: 1\r\n");
        let live = field(asked.split("\r\n\r\n").next().unwrap_or_default(), "X-Tidegate-Explain").join("");
        assert!(field(head, "X-Tidegate-Explain").is_empty(), "{shown}");
        if status == Some(400) {
            continue;
        }
        for step in told["steps"].as_array().expect("steps") {
            if let ("candidate" | "location" | "rewrite" | "redirect" | "status", Some(words)) =
                (step["kind"].as_str().unwrap_or_default(), step["text"].as_str())
                && !words.contains(": holds")
                && !words.contains(": does not hold")
            {
                assert!(live.contains(words) || live.ends_with("..."), "\"{words}\" is not in {live}\n{shown}");
            }
        }
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn explanations_need_permission() {
    let port = free_port();
    let conf =
        format!("http {{ tidegate_explain 192.0.2.0/24; server {{ listen 127.0.0.1:{port}; return 200 ok; }} }}");
    let site = Site::new("daemon off;", &conf);
    let running = site.start();
    let answer = send(port, "GET / HTTP/1.1\r\nHost: a\r\nX-Tidegate-Explain: 1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("X-Tidegate"), "{answer}");
    running.quit();
}

#[test]
fn nothing_is_passed_on_counted_or_changed() {
    let backend = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let to = backend.local_addr().expect("address");
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:8000; access_log logs/access.log; client_body_temp_path tmp;
         location / {{ proxy_pass http://{to}/base/; proxy_set_header X-A b; mirror /m; auth_request /m; }}
         location = /m {{ proxy_pass http://{to}; }}
         location /dav/ {{ root html; dav_methods DELETE; }} }} }}"
    );
    let site = Site::new("daemon off;", &conf);
    std::fs::create_dir(site.path("html/dav")).expect("a directory");
    site.write("html/dav/file", "here");
    let told = explain(&site, &["http://a:8000/x".into()]);
    assert_eq!(told["status"], Value::Null);
    assert_eq!(told["passes"]["text"], format!("proxy_pass http://{to}/base/;"));
    assert_eq!(told["passes"]["line"], 5);
    assert!(told["in_force"].as_array().expect("lines").iter().any(|line| line["text"] == "proxy_set_header X-A b;"));
    let told = explain(&site, &["http://a:8000/dav/file".into(), "-X".into(), "DELETE".into()]);
    assert_eq!(told["status"], Value::Null, "{told:#}");
    assert_eq!(site.read("html/dav/file"), "here");
    backend.set_nonblocking(true).expect("set");
    assert!(backend.accept().is_err(), "nobody has connected");
    assert_eq!(site.read("logs/access.log"), "");
}

#[test]
fn every_step_has_its_file_and_line() {
    let (site, port) = site();
    let told = explain(&site, &[format!("http://a.wild.example:{port}/")]);
    let first = &told["steps"][0];
    assert_eq!(
        (first["kind"].as_str(), first["text"].as_str()),
        (
            Some("server"),
            Some(format!("\"a.wild.example\" matches wildcard name \"*.wild.example\", on 127.0.0.1:{port}").as_str())
        )
    );
    for step in told["steps"].as_array().expect("steps") {
        assert!(step["line"].as_u64().is_some_and(|line| line > 3), "{step}");
    }
    let output = std::process::Command::new(BINARY)
        .args(["explain", "http://a:1/", "-c"])
        .arg(site.path("conf/nginx.conf"))
        .arg("-p")
        .arg(&site.dir)
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&format!("nothing listens on port 1; there are: 127.0.0.1:{port}")));
}
