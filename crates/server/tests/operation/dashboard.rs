//! The dashboard: numbers equal to the API's, escaping, changes by its own forms only, bounded streams.

use crate::support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::client::Client;
use support::origin::{Origin, ok};
use support::{Site, free_port, text, wait};

type Response = (u16, String, String);

fn send(port: u16, method: &str, path: &str, fields: &str, body: &str) -> Response {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{fields}");
    let request = match method {
        "POST" => format!("{head}Content-Length: {length}\r\n\r\n{body}"),
        _ => format!("{head}\r\n"),
    };
    Client::connect(port).and_then(|mut client| client.ask_for_all(&request)).expect("an answer")
}

fn get(port: u16, path: &str) -> Response {
    send(port, "GET", path, "", "")
}

fn page(port: u16) -> String {
    let (status, _, html) = get(port, "/dash/");
    assert_eq!(status, 200, "{html}");
    html
}

fn api(port: u16, path: &str) -> Value {
    let (status, _, body) = get(port, &format!("/api/9{path}"));
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Removes tags, and the spaces within numbers.
fn plain(html: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in html.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            '\u{202f}' => {}
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

/// Returns a number of a table: of the row whose heading begins with `row`, in the column with this name.
fn cell(html: &str, table: &str, row: &str, column: &str) -> String {
    let from = html.find(&format!("<table id=\"table-{table}\"")).unwrap_or_else(|| panic!("no table {table}: {html}"));
    let table = &html[from..from + html[from..].find("</table>").expect("an end")];
    let (head, body) = table.split_once("</thead>").expect("a head");
    let names: Vec<String> = head.split("<th scope=\"col\"").skip(1).map(|th| plain(&format!("<{th}"))).collect();
    let at = names.iter().position(|name| name == column).unwrap_or_else(|| panic!("no column {column}: {names:?}"));
    for line in body.split("<tr ").skip(1) {
        let cells: Vec<String> =
            line.split("</th>").flat_map(|part| part.split("</td>")).map(|td| plain(&format!("<{td}"))).collect();
        if cells[0].starts_with(row) {
            return cells[at].clone();
        }
    }
    panic!("no row {row}: {body}");
}

/// A site with an object of every kind, and a dashboard on the first port.
fn site([port, front, stream_port]: [u16; 3], origin: &Origin, dashboard: &str) -> Site {
    let origin = format!("127.0.0.1:{}", origin.port);
    let conf = format!(
        "http {{
            proxy_cache_path cache keys_zone=store:1m max_size=1m;
            limit_req_zone $uri zone=rate:32k rate=1r/m;
            keyval_zone zone=pairs:64k;
            keyval $arg_key $pair zone=pairs;
            resolver 127.0.0.1:1 status_zone=names;
            upstream app {{ zone app 64k; server {origin} max_conns=100; server 127.0.0.1:1 down; }}
            upstream fixed {{ server {origin}; }}
            server {{
                listen 127.0.0.1:{port}; server_name known.example;
                location /dash {{ {dashboard} }}
                location /api {{ api write=on; }}
            }}
            server {{
                listen 127.0.0.1:{front}; server_name shop.example; status_zone site;
                location / {{ status_zone front; proxy_pass http://app; }}
                location /cached {{ proxy_cache store; proxy_cache_valid 1h; proxy_pass http://app; }}
                location /limited {{ limit_req zone=rate; return 200; }}
                location /none {{ return 404; }}
                location /bad {{ return 500; }}
            }}
        }}
        stream {{ upstream tcp {{ zone tcp 64k; server {origin}; }}
            server {{ listen 127.0.0.1:{stream_port}; status_zone door; proxy_pass tcp; }} }}"
    );
    Site::new("daemon off; worker_processes 2;", &conf)
}

#[test]
fn the_page_has_the_numbers_of_the_api() {
    let (port, front, stream_port) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site([port, front, stream_port], &origin, "dashboard;");
    let running = site.start();
    for path in ["/", "/a", "/b", "/cached", "/cached", "/limited", "/limited", "/none", "/none", "/bad"] {
        get(front, path);
    }
    assert_eq!(get(stream_port, "/").0, 200);
    wait("the session's end", || {
        let door = api(port, "/stream/server_zones/door");
        (door.pointer("/sessions/2xx").and_then(Value::as_u64) == Some(1)).then_some(()).ok_or(door)
    });
    let peer = format!("127.0.0.1:{}", origin.port);
    let expected = [
        ("servers", "shop.example", "Requests", "/http/server_zones/site", "/requests"),
        ("servers", "shop.example", "4xx", "/http/server_zones/site", "/responses/4xx"),
        ("servers", "shop.example", "5xx", "/http/server_zones/site", "/responses/5xx"),
        ("locations", "/", "Requests", "/http/location_zones/front", "/requests"),
        ("upstream-http-app", &peer, "Requests", "/http/upstreams/app", "/peers/0/requests"),
        ("upstream-http-app", &peer, "Weight", "/http/upstreams/app", "/peers/0/weight"),
        ("upstream-stream-tcp", &peer, "Sessions", "/stream/upstreams/tcp", "/peers/0/connections"),
        ("caches", "store", "Hit", "/http/caches/store", "/hit/responses"),
        ("caches", "store", "Miss", "/http/caches/store", "/miss/responses"),
        ("limits", "rate", "Rejected", "/http/limit_reqs/rate", "/rejected"),
        ("limits", "rate", "Passed", "/http/limit_reqs/rate", "/passed"),
        ("streams", "door", "Sessions", "/stream/server_zones/door", "/connections"),
        ("resolvers", "names", "Names", "/resolvers/names", "/requests/name"),
    ];
    wait("equal numbers", || {
        let html = page(port);
        for (table, row, column, path, pointer) in &expected {
            let (shown, value) = (cell(&html, table, row, column), api(port, path));
            let told =
                value.pointer(pointer).and_then(Value::as_u64).ok_or_else(|| format!("{path}{pointer}: {value}"))?;
            if shown != told.to_string() {
                return Err(format!("{table} {row} {column}: {shown}, {told}"));
            }
        }
        Ok(())
    });
    let html = page(port);
    assert_eq!(cell(&html, "servers", "shop.example", "4xx"), "2");
    assert!(cell(&html, "upstream-http-app", "127.0.0.1:1", "State").contains("down"), "{html}");
    // Means and quantiles are those of one period; lines have a scale.
    assert!(html.contains("times: since the counters began"), "{html}");
    assert!(html.contains("5\u{a0}min ago</span>") && html.contains("class=\"zero\""), "{html}");
    assert_eq!(cell(&html, "locations", "/bad", "Handler"), "rewrite rules");
    assert_eq!(cell(&html, "locations", "/dash", "Handler"), "dashboard");
    let place = cell(&html, "locations", "/none", "Configured");
    let conf = site.read("conf/nginx.conf");
    let line = conf.lines().position(|line| line.contains("location /none")).expect("a line") + 1;
    assert!(place.ends_with(&format!("conf/nginx.conf:{line}")), "{place}");
    assert_eq!(cell(&html, "keyvals", "pairs", "Pairs"), "0");
    assert!(cell(&html, "files", "/", "File").ends_with("conf/nginx.conf"));
    assert!(html.contains("no zone: requests are not counted") && !html.contains("<form method=\"post\""), "{html}");
    // Scripts get equal sections.
    let (status, head, body) = get(port, "/dash/data");
    assert!(status == 200 && head.contains("application/json"), "{head}");
    let data: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(cell(data["sections"]["servers"].as_str().expect("a section"), "servers", "shop.example", "4xx"), "2");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn responses_are_protected_and_files_are_coded() {
    let (port, front, stream_port) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site([port, front, stream_port], &origin, "dashboard;");
    let running = site.start();
    let html = page(port);
    let style = html.split("href=\"dashboard.css?").nth(1).and_then(|rest| rest.split('"').next()).expect("a style");
    for path in
        ["/dash/", "/dash/data", "/dash/dashboard.css", "/dash/dashboard.js", "/dash/icon.svg", "/dash/?explain=/x"]
    {
        let (status, head, _) = get(port, path);
        assert_eq!(status, 200, "{path}");
        for field in [
            "Content-Security-Policy: default-src 'self';",
            "frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
        ] {
            assert!(head.contains(field), "{path} lacks {field}:\n{head}");
        }
        assert_eq!(
            head.contains("Cache-Control: no-store"),
            path.ends_with('/') || path.ends_with("data") || path.contains('?')
        );
    }
    assert!(!html.contains(" style=") && !html.contains("<style") && !html.contains(" onclick"), "inline");
    assert!(html.split("<script").skip(1).all(|script| script.starts_with(" src=\"dashboard.js?v=")), "{html}");
    assert!(!html.contains("://"), "an address of elsewhere: {html}");
    for (accept, coding) in [("gzip, deflate, br", "br"), ("gzip", "gzip")] {
        let path = format!("/dash/dashboard.css?{style}");
        let (_, head, _) = send(port, "GET", &path, &format!("Accept-Encoding: {accept}\r\n"), "");
        assert!(head.contains(&format!("Content-Encoding: {coding}\n")) && head.contains("immutable"), "{head}");
    }
    for (method, path, status) in [
        ("GET", "/dash/none", 404),
        ("GET", "/dashboard", 404),
        ("POST", "/dash/", 405),
        ("DELETE", "/dash/", 405),
        ("POST", "/dash/data", 405),
        ("PUT", "/dash/dashboard.js", 405),
        ("HEAD", "/dash/", 200),
    ] {
        let (found, _, _) = match method {
            "HEAD" => {
                let request = format!("HEAD {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
                stream.write_all(request.as_bytes()).expect("sent");
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).expect("a line");
                (
                    line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status"),
                    String::new(),
                    String::new(),
                )
            }
            _ => send(port, method, path, "", ""),
        };
        assert_eq!(found, status, "{method} {path}");
    }
    let (status, head, _) = get(port, "/dash");
    assert!(status == 301 && head.contains("/dash/\n"), "{head}");
    // A name that a page of another site has made point here.
    for (host, status) in [("evil.example", 421), ("known.example", 200), ("localhost:1", 200), ("[::1]", 200)] {
        for path in ["/dash/", "/dash/data", "/dash/events"] {
            let request = format!("HEAD {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            stream.write_all(request.as_bytes()).expect("sent");
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).expect("a line");
            assert!(line.contains(&format!(" {status} ")), "{host} {path}: {line}");
        }
    }
    running.quit();
    site.assert_no_alerts();
}

fn hidden(html: &str, form: &str, name: &str) -> String {
    let from = html.find(form).unwrap_or_else(|| panic!("no {form}: {html}"));
    let marker = format!("name=\"{name}\" value=\"");
    let at = html[..from].rfind(&marker).unwrap_or_else(|| panic!("no {name} before {form}")) + marker.len();
    html[at..].split('"').next().expect("a value").to_string()
}

#[test]
fn only_forms_of_the_page_change_something() {
    let (port, front, stream_port) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site([port, front, stream_port], &origin, "dashboard write=on;");
    let running = site.start();
    let html = page(port);
    let token = hidden(&html, "Remove 127.0.0.1:1", "token");
    let generation = hidden(&html, "Remove 127.0.0.1:1", "generation");
    let form = format!("action=change&area=http&group=app&id=0&weight=7&generation={generation}");
    let own = format!("Origin: http://127.0.0.1:{port}\r\n");
    let fetched = "Sec-Fetch-Site: same-origin\r\n";
    let weight = || api(port, "/http/upstreams/app/servers/0")["weight"].as_u64();
    let wrong = token.chars().rev().collect::<String>();
    for (what, fields, body) in [
        ("no origin", String::new(), format!("{form}&token={token}")),
        ("another origin", "Origin: http://evil.example\r\n".into(), format!("{form}&token={token}")),
        ("another port", format!("Origin: http://127.0.0.1:{}\r\n", port ^ 1), format!("{form}&token={token}")),
        ("no page", "Origin: null\r\n".into(), format!("{form}&token={token}")),
        ("another site", format!("{own}Sec-Fetch-Site: cross-site\r\n"), format!("{form}&token={token}")),
        ("a site next to it", format!("{own}Sec-Fetch-Site: same-site\r\n"), format!("{form}&token={token}")),
        ("no token", own.clone(), form.clone()),
        ("an empty token", own.clone(), format!("{form}&token=")),
        ("a wrong token", own.clone(), format!("{form}&token={wrong}")),
        ("a wrong field", format!("{own}X-Tidegate-Token: {wrong}\r\n"), format!("{form}&token={token}")),
    ] {
        let (status, head, html) = send(port, "POST", "/dash/", &fields, &body);
        assert_eq!(status, 403, "{what}: {html}");
        assert!(head.contains("Content-Security-Policy"), "{head}");
        assert_eq!(weight(), Some(1), "{what}");
    }
    for (what, body, status) in [
        ("no group", form.replace("group=app", "group=none"), 404),
        ("a group without zone", form.replace("group=app", "group=fixed"), 400),
        ("another path", form.replace("group=app", "group=app%2f..%2f..%2fkeyvals"), 400),
        ("no number", form.replace("weight=7", "weight=x"), 400),
        ("a weight of 0", form.replace("weight=7", "weight=0"), 400),
        ("an unknown server", form.replace("id=0", "id=99"), 404),
        ("no id", form.replace("id=0", "id=0%2f1"), 400),
        ("an unconfirmed removal", form.replace("action=change", "action=remove"), 400),
        ("an unknown action", form.replace("action=change", "action=purge"), 400),
        ("an unknown area", form.replace("area=http", "area=mail"), 400),
        ("a malformed form", "weight".into(), 400),
        ("a page of earlier", form.replace(&format!("generation={generation}"), "generation=999"), 412),
    ] {
        let (found, _, html) = send(port, "POST", "/dash/", &own, &format!("{body}&token={token}"));
        assert_eq!(found, status, "{what}: {html}");
        assert!(html.contains("role=\"alert\"><span class=\"badge bad\""), "{what}: {html}");
        assert_eq!(weight(), Some(1), "{what}");
    }
    // GET changes nothing, whatever its arguments.
    let (status, ..) = send(port, "GET", &format!("/dash/?{form}&token={token}"), &own, "");
    assert_eq!((status, weight()), (200, Some(1)));
    // A form of a browser without scripts, whose page sends no referrer.
    let (status, head, _) = send(
        port,
        "POST",
        "/dash/",
        &format!("{fetched}Origin: null\r\n"),
        &format!("{form}&token={token}&state=drain"),
    );
    assert!(status == 303 && head.contains("/dash/#upstreams\n"), "{status} {head}");
    assert_eq!(weight(), Some(7));
    let html = page(port);
    let peer = format!("127.0.0.1:{}", origin.port);
    assert_eq!(cell(&html, "upstream-http-app", &peer, "Weight"), "7");
    assert!(cell(&html, "upstream-http-app", &peer, "State").contains("draining"));
    // Scripts send the token in a field, and read JSON.
    let generation = hidden(&html, "Remove 127.0.0.1:1", "generation");
    let fields = format!("{own}{fetched}Accept: application/json\r\nX-Tidegate-Token: {token}\r\n");
    let body = format!("action=add&area=http&group=app&server=127.0.0.1:2&weight=3&generation={generation}");
    let (status, _, answer) = send(port, "POST", "/dash/", &fields, &body);
    assert!(status == 200 && answer.contains("\"done\""), "{status} {answer}");
    let (status, _, answer) = send(port, "POST", "/dash/", &fields, &body);
    assert!(status == 412 && answer.contains("\"error\""), "{status} {answer}");
    let generation = hidden(&page(port), "Remove 127.0.0.1:1", "generation");
    let body = format!("action=remove&area=http&group=app&id=1&sure=yes&generation={generation}");
    let (status, _, answer) = send(port, "POST", "/dash/", &fields, &body);
    assert_eq!(status, 200, "{answer}");
    let servers = api(port, "/http/upstreams/app/servers");
    let names: Vec<&str> = servers.as_array().expect("a list").iter().filter_map(|s| s["server"].as_str()).collect();
    assert_eq!(names, [peer.as_str(), "127.0.0.1:2"]);
    assert!(site.log().contains("dashboard: server 0 of upstream \"app\": change, drain"), "{}", site.log());
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn nothing_enters_the_page_unescaped() {
    let port = free_port();
    let origin = Origin::answering(|_| ok("from behind"));
    let evil = "<script>alert(1)</script>'\\\"";
    let conf = format!(
        "http {{
            upstream \"{evil}\" {{ zone \"zone{evil}\" 64k; server 127.0.0.1:{}; }}
            upstream \"<script>forms'\\\"\" {{ zone forms 64k; server 127.0.0.1:1 down; }}
            keyval_zone \"zone=pairs{evil}:32k\"; keyval $arg_key $pair \"zone=pairs{evil}\";
            limit_req_zone $uri \"zone=rate{evil}:32k\" rate=1r/s;
            server {{
                listen 127.0.0.1:{port}; server_name \"{evil}\"; status_zone \"site{evil}\"; root html;
                location /dash/ {{ dashboard write=on; }}
                location \"/{evil}\" {{ status_zone \"location{evil}\"; limit_req \"zone=rate{evil}\"; return 200; }}
            }}
        }}",
        origin.port
    );
    let site = Site::new("daemon off; worker_processes 1;", &conf);
    let running = site.start();
    // The error log holds the path.
    let (status, ..) = get(port, "/%3Cscript%3Ealert(2)%3C/script%3E%22%27");
    assert_eq!(status, 404);
    site.wait_for_log("<script>alert(2)</script>", 1);
    let html = wait("the line in the page", || {
        let html = page(port);
        if html.contains("alert(2)") { Ok(html) } else { Err(html) }
    });
    let (_, _, explained) = get(port, "/dash/?explain=/%3Cscript%3Ealert(3)%3C/script%3E%22%27+x");
    assert!(explained.contains("alert(3)") && explained.contains("class=\"steps\""), "{explained}");
    let (_, _, wrong) = get(port, "/dash/?explain=%22%3E%3Cscript%3Ealert(4)");
    assert!(wrong.contains("value=\"&quot;&gt;&lt;script&gt;alert(4)"), "{wrong}");
    let own = format!("Origin: http://127.0.0.1:{port}\r\n");
    let token = hidden(&html, "required> Remove ", "token");
    let form =
        "action=add&area=http&generation=1&server=%3Cscript%3Ealert(5)&group=%3Cscript%3Ealert(1)%3C%2fscript%3E";
    let (_, _, refused) = send(port, "POST", "/dash/", &own, &format!("{form}&token={token}"));
    let (_, _, data) = get(port, "/dash/data");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    let sections: String = data["sections"].as_object().expect("sections").values().filter_map(Value::as_str).collect();
    for (what, html) in
        [("page", &html), ("explanation", &explained), ("error", &wrong), ("refusal", &refused), ("data", &sections)]
    {
        let scripts = if what == "data" { 0 } else { 1 };
        assert_eq!(html.matches("<script").count(), scripts, "{what}: {html}");
        assert!(!html.contains("'\"") && !html.contains("\"'"), "{what}: a quote: {html}");
        if what == "page" {
            for name in ["zone", "pairs", "rate", "site", "location"] {
                assert!(html.contains(&format!("{name}&lt;script&gt;alert(1)")), "{name} is missing: {html}");
            }
        }
    }
    running.quit();
}

fn event(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).expect("a line") == 0 || line == "0\r\n" {
            return None;
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(data).expect("JSON"));
        }
    }
}

fn open(port: u16) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let request = format!("GET /dash/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut stream = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).expect("a head") > 0);
        head.push_str(&line);
    }
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    assert_eq!(head.contains("text/event-stream"), status == 200, "{head}");
    (status, stream)
}

#[test]
fn streams_tell_changes_and_end_with_their_configuration() {
    let (port, front, stream_port) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site([port, front, stream_port], &origin, "dashboard;");
    let running = site.start();
    let (status, mut stream) = open(port);
    assert_eq!(status, 200);
    let first = event(&mut stream).expect("an event");
    let order: Vec<&str> = first["order"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert!(order.starts_with(&["overview", "servers", "upstreams"]), "{order:?}");
    assert!(order.iter().all(|id| first["sections"][id].is_string()), "{first}");
    event(&mut stream).expect("an event");
    get(front, "/none");
    // Later events have the sections that changed.
    loop {
        let next = event(&mut stream).expect("an event");
        assert!(next["sections"]["resolvers"].is_null(), "nothing changed there: {next}");
        if let Some(html) = next["sections"]["servers"].as_str()
            && cell(html, "servers", "shop.example", "4xx") == "1"
        {
            break;
        }
    }
    site.wait_for_log("start worker process", 1);
    running.signal("HUP");
    while event(&mut stream).is_some() {}
    let (_, mut stream) = open(port);
    let first = event(&mut stream).expect("an event");
    let configuration = first["sections"]["configuration"].as_str().expect("a section");
    assert_eq!(configuration.matches("serves as configuration").count(), 2, "{configuration}");
    // The master reports a refused reload to the worker.
    let good = site.read("conf/nginx.conf");
    site.write("conf/nginx.conf", &good.replace("location /none", "no_such_directive; location /none"));
    running.signal("HUP");
    let html = wait("the refusal", || {
        let html = page(port);
        if html.contains("no_such_directive") { Ok(html) } else { Err(html) }
    });
    assert!(html.contains("The last reload was refused: "), "{html}");
    assert!(cell(&html, "loads", "", "Result").contains("refused"), "{html}");
    // Open streams do not delay the end.
    running.quit();
    while event(&mut stream).is_some() {}
    site.assert_no_alerts();
}

#[test]
fn streams_are_bounded_and_slow_readers_cost_only_themselves() {
    const STREAMS_MAX: usize = 32;
    let (port, front, stream_port) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site([port, front, stream_port], &origin, "dashboard;");
    let running = site.start();
    // None of them reads its events.
    let mut all: Vec<_> = (0..STREAMS_MAX).map(|_| open(port)).collect();
    assert!(all.iter().all(|(status, _)| *status == 200));
    let (status, _) = open(port);
    assert_eq!(status, 503);
    // The page and the data are still there, and other streams go on.
    assert_eq!(get(port, "/dash/data").0, 200);
    page(port);
    let (_, last) = all.last_mut().expect("a stream");
    assert!(event(last).is_some() && event(last).is_some());
    drop(all);
    wait("a seat", || match open(port).0 {
        200 => Ok(()),
        status => Err(status),
    });
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn urls_are_explained_by_the_running_configuration() {
    let (port, front, stream_port) = (free_port(), free_port(), free_port());
    let origin = Origin::answering(|_| ok("from behind"));
    let site = site([port, front, stream_port], &origin, "dashboard;");
    let running = site.start();
    // The present contents of the file do not matter.
    let conf = site.read("conf/nginx.conf");
    let line = conf.lines().position(|line| line.contains("location /cached")).expect("a line") + 1;
    site.write("conf/nginx.conf", "");
    let explain = |url: &str| {
        let (status, _, html) = get(port, &format!("/dash/?explain={url}"));
        assert_eq!(status, 200);
        html
    };
    let html = explain(&format!("http://shop.example:{front}/cached/x"));
    assert!(html.contains("proxied to") && html.contains(&format!("conf/nginx.conf:{line}")), "{html}");
    let html = explain(&format!("http://shop.example:{front}/none"));
    assert!(html.contains("<b>response</b> 404") && html.contains("matches exact name"), "{html}");
    // The dashboard explains itself, without waiting for itself.
    assert!(explain("/dash/").contains("<b>response</b> 200"));
    assert!(explain("/dash/%3fexplain=/dash/").contains("class=\"steps\""));
    assert!(explain("https://known.example:1/").contains("nothing listens on port 1"));
    assert!(explain("x").contains("write a path that begins with"));
    assert!(explain("/a%0d%0aX:%201").contains("must not contain line breaks"));
    assert!(explain(&format!("/{}", "x".repeat(3000))).contains("the URL is too long"));
    assert_eq!(origin.connections(), 0, "an explanation asks no server");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn an_open_dashboard_is_an_error() {
    let check = |server: &str| {
        let site = Site::new("daemon off;", &format!("http {{ server {{ {server} }} }}"));
        let output = site.run(&["-t"]);
        (output.status.success(), text(&output.stderr))
    };
    let port = free_port();
    for (server, words) in [
        (format!("listen {port}; location /dash/ {{ dashboard; }}"), "without access rules"),
        ("location /dash/ { dashboard; }".into(), "without access rules"),
        (
            format!("listen 127.0.0.1:{port}; listen {}; location /dash/ {{ dashboard; }}", free_port()),
            "without access rules",
        ),
        (format!("listen 127.0.0.1:{port}; location ~ /dash {{ dashboard; }}"), "given by a prefix"),
        (format!("listen 127.0.0.1:{port}; location = /dash {{ dashboard; }}"), "given by a prefix"),
        (format!("listen 127.0.0.1:{port}; location /dash {{ dashboard on; }}"), "invalid parameter \"on\""),
        (format!("listen 127.0.0.1:{port}; dashboard;"), "is not allowed here"),
    ] {
        let (done, said) = check(&server);
        assert!(!done && said.contains(words), "{server}: {said}");
    }
    for server in [
        format!("listen 127.0.0.1:{port}; location /dash/ {{ dashboard write=on; }}"),
        format!("listen {port}; location /dash/ {{ dashboard; allow 10.0.0.0/8; deny all; }}"),
        "listen unix:dash.sock; location /dash/ { dashboard; }".into(),
    ] {
        let (done, said) = check(&server);
        assert!(done, "{server}: {said}");
    }
}
