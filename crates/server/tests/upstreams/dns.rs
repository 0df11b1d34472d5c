//! Names answered by place and health (`dns`), by a client of ours and by dig.

use crate::support;

use std::net::TcpListener;
use std::process::Command;
use support::dns::{A, AAAA, TXT, ask, ask_stream, query, socket, try_ask};
use support::origin::Origin;
use support::{Site, free_port, text, wait};

/// A server that a health check can connect to, until it is stopped.
struct Server {
    address: String,
    origin: Option<Origin>,
}

impl Server {
    fn start(ip: &str) -> Server {
        let listener = TcpListener::bind((ip, free_port())).expect("bind");
        let address = listener.local_addr().expect("an address").to_string();
        Server { address, origin: Some(Origin::on(listener, |talk| drop(talk))) }
    }
    fn stop(&mut self) {
        self.origin = None;
    }
    fn start_again(&mut self) {
        let listener = wait("the port", || TcpListener::bind(&self.address));
        self.origin = Some(Origin::on(listener, |talk| drop(talk)));
    }
}

const RECORDS: &str = "@ NS ns1; @ MX 10 mail; @ TXT \"v=spf1 -all\"; @ CAA 0 issue ca.example;
    @ HTTPS 1 . alpn=h2,h3 port=8443; ns1 A 127.0.0.1; mail A 192.0.2.9; www CNAME web; *.wild A 192.0.2.7;
    _https._tcp SRV 1 2 8443 web; web 1m A 192.0.2.1 192.0.2.2; web AAAA 2001:db8::1;";

fn site(port: u16, stream: &str, server: &str, zone: &str) -> Site {
    let rest = format!(
        "stream {{
            log_format queries '$protocol $dns_name $dns_type $dns_response_code [$dns_client_subnet] $dns_client_address $dns_zone [$dns_pool] $status';
            access_log logs/queries.log queries;
            {stream}
            server {{
                listen 127.0.0.1:{port} udp; listen 127.0.0.1:{port};
                {server}
                dns example.org ttl=5m {{ {zone} }}
            }}
        }}"
    );
    Site::new("daemon off; worker_processes 2;", &rest)
}

#[test]
fn records_over_udp_and_pipelined_over_tcp() {
    let port = free_port();
    let site = site(port, "", "", RECORDS);
    let running = site.start();
    let answer = ask(port, "WWW.example.org", A);
    assert_eq!((answer.code(), answer.addresses()), (0, vec!["192.0.2.1".to_string(), "192.0.2.2".into()]));
    assert_eq!(answer.records[1].1, 60, "the TTL of the line");
    // A response leaves before its line of the log, and another thread may log the next one.
    wait("the line of the query", || (!site.read("logs/queries.log").is_empty()).then_some(()).ok_or("none"));
    let names = ["web.example.org", "none.example.org", "a.wild.example.org", "example.net", "web.example.org"];
    let messages: Vec<Vec<u8>> =
        names.iter().zip(1..).map(|(name, id)| query(id, name, if id == 5 { TXT } else { A }, None)).collect();
    let answers = ask_stream(port, &messages);
    let seen: Vec<(u16, u16, usize)> = answers.iter().map(|one| (one.id, one.code(), one.records.len())).collect();
    assert_eq!(seen, [(1, 0, 2), (2, 3, 0), (3, 0, 1), (4, 5, 0), (5, 0, 0)]);
    assert!(answers.iter().all(|answer| !answer.is_truncated()));
    running.quit();
    let log = site.read("logs/queries.log");
    let wanted = "UDP WWW.example.org A NOERROR [-] 127.0.0.1 example.org [-] 200
TCP web.example.org A NOERROR [-] 127.0.0.1 example.org [-] 200
TCP none.example.org A NXDOMAIN [-] 127.0.0.1 example.org [-] 200
TCP a.wild.example.org A NOERROR [-] 127.0.0.1 example.org [-] 200
TCP example.net A REFUSED [-] 127.0.0.1 - [-] 403
TCP web.example.org TXT NOERROR [-] 127.0.0.1 example.org [-] 200
";
    assert_eq!(log, wanted);
    site.assert_no_alerts();
}

#[test]
fn pools_leave_out_servers_whose_checks_fail() {
    let port = free_port();
    let mut near = [Server::start("127.0.0.2"), Server::start("127.0.0.3")];
    let far = Server::start("127.0.0.4");
    let groups = format!(
        "upstream near {{ zone near 64k; server {}; server {}; }}
         upstream far {{ zone far 64k; server {}; }}",
        near[0].address, near[1].address, far.address
    );
    let zone = "@ NS ns.example.net.; any 30 pool near far; strict pool near down=servfail; only pool near down=nodata; all pool near;";
    let site =
        site(port, &groups, "health_check interval=50ms jitter=0 fails=1 passes=1; health_check_timeout 1s;", zone);
    let running = site.start();
    let wait_for = |name: &str, wanted: &[&str]| {
        wait(&format!("{name}: {wanted:?}"), || {
            let seen = ask(port, name, A).addresses();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?} {}", site.log())) }
        });
    };
    wait_for("any.example.org", &["127.0.0.2", "127.0.0.3"]);
    near[0].stop();
    wait_for("any.example.org", &["127.0.0.3"]);
    assert_eq!(ask(port, "all.example.org", A).addresses(), ["127.0.0.3"]);
    near[1].stop();
    wait_for("any.example.org", &["127.0.0.4"]);
    assert_eq!(ask(port, "strict.example.org", A).code(), 2);
    assert_eq!((ask(port, "only.example.org", A).code(), ask(port, "only.example.org", A).records.len()), (0, 0));
    assert_eq!(ask(port, "all.example.org", A).addresses(), ["127.0.0.2", "127.0.0.3"], "all, if all are gone");
    near[0].start_again();
    wait_for("any.example.org", &["127.0.0.2"]);
    assert_eq!(ask(port, "any.example.org", AAAA).code(), 0, "no data: the group has IPv4 only");
    running.quit();
    assert!(
        site.read("logs/queries.log").contains("UDP any.example.org A NOERROR [-] 127.0.0.1 example.org [far] 200")
    );
    site.assert_no_alerts();
}

const PLACES: &str = "geo $dns_client_address $place { default eu; 198.51.100.0/24 US; 203.0.113.0/24 asia; }
    upstream eu { server 192.0.2.1:443; } upstream us { server 192.0.2.2:443; } upstream asia { server 192.0.2.3:443 down; }";
const BY_PLACE: &str = "@ NS ns.example.net.; www 30 pool $place us=us asia=asia,us default=eu; ns A 192.0.2.9;";

#[test]
fn the_subnet_of_the_client_decides_on_the_place() {
    let port = free_port();
    let site = site(port, PLACES, "", BY_PLACE);
    let running = site.start();
    let from = |subnet| {
        let answer = try_ask(port, &query(1, "www.example.org", A, subnet)).expect("an answer");
        (answer.addresses().join(" "), answer.scope)
    };
    assert_eq!(from(None), ("192.0.2.1".into(), None), "the place of the resolver");
    assert_eq!(from(Some(([198, 51, 100, 0], 24))), ("192.0.2.2".into(), Some(24)));
    assert_eq!(
        from(Some(([203, 0, 113, 64], 26))),
        ("192.0.2.2".into(), Some(26)),
        "the next group of a place without servers"
    );
    assert_eq!(from(Some(([192, 0, 0, 0], 8))), ("192.0.2.1".into(), Some(8)));
    assert_eq!(from(Some(([0; 4], 0))), ("192.0.2.1".into(), Some(0)), "a client that wants to stay unknown");
    let fixed = try_ask(port, &query(1, "ns.example.org", A, Some(([198, 51, 100, 0], 24)))).expect("an answer");
    assert_eq!(fixed.scope, Some(0), "holds for all");
    // The places of two queries of a connection differ.
    let stream = ask_stream(
        port,
        &[query(1, "www.example.org", A, Some(([198, 51, 100, 0], 24))), query(2, "www.example.org", A, None)],
    );
    let addresses: Vec<String> = stream.iter().map(|answer| answer.addresses().join(" ")).collect();
    assert_eq!(addresses, ["192.0.2.2", "192.0.2.1"]);
    running.quit();
    assert!(site.read("logs/queries.log").contains("A NOERROR [198.51.100.0/24] 198.51.100.0 example.org [us] 200"));
}

#[test]
fn queries_beyond_the_rate_are_sent_to_tcp_or_dropped() {
    let port = free_port();
    let limit = "dns_rate_limit 1r/m burst=4;";
    let metrics = free_port();
    let site = site(port, "", limit, RECORDS);
    let main = site.read("conf/nginx.conf");
    let http = format!("http {{ access_log off; server {{ listen 127.0.0.1:{metrics}; location / {{ metrics; }} }} }}");
    site.write("conf/nginx.conf", &format!("{main}\n{http}\n"));
    let running = site.start();
    let socket = socket(port);
    for id in 0..20 {
        socket.send(&query(id, "web.example.org", A, None)).expect("sent");
    }
    let mut seen = (0, 0);
    let mut buf = [0; 1500];
    for _ in 0..12 {
        let length = socket.recv(&mut buf).expect("a response");
        let answer = support::dns::read(&buf[..length]);
        if answer.is_truncated() { seen.1 += 1 } else { seen.0 += 1 }
    }
    assert_eq!(seen, (4, 8), "full and truncated responses");
    assert_eq!(ask_stream(port, &[query(1, "web.example.org", A, None)])[0].records.len(), 2, "TCP is not limited");
    let (_, page) = support::client::get(metrics).expect("a page");
    for line in [
        "tidegate_dns_queries_total{transport=\"udp\"} 20",
        "tidegate_dns_queries_total{transport=\"tcp\"} 1",
        "tidegate_dns_responses_total{code=\"noerror\"} 5",
        "tidegate_dns_truncated_total{reason=\"rate\"} 8",
        "tidegate_dns_dropped_total{reason=\"rate\"} 8",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    running.quit();
}

#[test]
fn malformed_messages_cost_themselves_only() {
    let port = free_port();
    let site = site(port, "", "", RECORDS);
    let running = site.start();
    let good = query(9, "web.example.org", A, None);
    let broken = |at: usize, octet: u8| {
        let mut bytes = good.clone();
        bytes[at] = octet;
        bytes
    };
    assert_eq!(try_ask(port, &broken(5, 2)).expect("an answer").code(), 1, "FORMERR");
    assert_eq!(try_ask(port, &broken(2, 0x28)).expect("an answer").code(), 4, "NOTIMP: UPDATE");
    let socket = socket(port);
    for message in [&broken(2, 0x80)[..], b"x", &good[..11]] {
        socket.send(message).expect("sent");
    }
    socket.send(&good).expect("sent");
    let mut buf = [0; 1500];
    let length = socket.recv(&mut buf).expect("a response");
    assert_eq!(support::dns::read(&buf[..length]).id, 9, "the first response is that of the query");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn reloads_lose_no_query() {
    let port = free_port();
    let site = site(port, "", "dns_rate_limit off;", RECORDS);
    let running = site.start();
    for round in 0..10u16 {
        running.signal("HUP");
        for id in 0..200 {
            let answer = try_ask(port, &query(id, "web.example.org", A, None)).expect("an answer");
            assert_eq!((answer.id, answer.records.len()), (id, 2), "round {round}");
        }
    }
    running.quit();
}

/// Returns the part of a line that carets mark.
fn text_above_carets(words: &str) -> &str {
    let lines: Vec<&str> = words.lines().collect();
    let at = lines.iter().position(|line| line.trim_end().ends_with('^')).expect("carets");
    let (start, end) = (lines[at].find('^').expect("a caret"), lines[at].rfind('^').expect("a caret"));
    lines[at - 1].get(start..=end).unwrap_or_default()
}

#[test]
fn configurations_with_faults_are_refused_at_their_words() {
    let explained = |stream: &str| {
        let output = Site::new("", &format!("stream {{\n{stream}\n}}")).run(&["-t", "--explain"]);
        (output.status.success(), text(&output.stderr))
    };
    let zone = |lines: &str| {
        format!(
            "upstream u {{ server 127.0.0.1:1; }}\nupstream s {{ server unix:/s; }}\nserver {{ listen 127.0.0.1:1 udp; dns example.org {{ @ NS ns.example.net.;\n{lines}\n}} }}"
        )
    };
    assert!(explained(&zone("a pool u;")).0);
    for (lines, reason, marked) in [
        ("a pool u none;", "no upstream \"none\" for a pool", "none"),
        ("a pool s;", "upstream \"s\" of a pool has a UNIX-domain socket", "s"),
        ("a A 192.0.2.256;", "invalid IPv4 address \"192.0.2.256\"", "192.0.2.256"),
        (
            "a.example.net. A 192.0.2.1;",
            "the name \"a.example.net.\" is outside of the zone \"example.org\"",
            "a.example.net. A 192.0.2.1;",
        ),
        ("a 99999999999 A 192.0.2.1;", "invalid time to live \"99999999999\"", "99999999999"),
        ("a B 192.0.2.1;", "unknown type of record \"B\"", "B"),
        ("a CNAME b; b CNAME a;", "the aliases of \"a.example.org\" run in a circle", "dns"),
    ] {
        let (accepted, words) = explained(&zone(lines));
        assert!(!accepted && words.contains(reason) && words.contains("nginx.conf:"), "{lines}: {words}");
        assert_eq!(text_above_carets(&words), marked, "{lines}: {words}");
    }
    let twice = "server { listen 127.0.0.1:1 udp; dns a { @ NS b.; } dns A { @ NS b.; } }";
    assert!(explained(twice).1.contains("duplicate zone \"a\""));
    assert!(explained("server { listen 127.0.0.1:1 udp; dns a { } }").1.contains("the zone \"a\" has no name servers"));
}

/// Runs dig; `None`: it is not installed.
fn dig(port: u16, arguments: &[&str]) -> Option<String> {
    let output = Command::new("dig").args(["@127.0.0.1", "-p", &port.to_string()]).args(arguments).output();
    let Ok(output) = output else {
        testkit::missing_peer("dig");
        return None;
    };
    Some(text(&output.stdout))
}

#[test]
fn dig_reads_all_types_and_the_subnet() {
    let port = free_port();
    let places =
        format!("{RECORDS} geo 30 pool $place us=us default=eu; big TXT {};", "\"a text of some length\" ".repeat(60));
    let site = site(port, PLACES, "dns_rate_limit off;", &places);
    let running = site.start();
    for (arguments, wanted) in [
        (&["+short", "example.org", "MX"][..], "10 mail.example.org.\n"),
        (&["+short", "example.org", "TXT"], "\"v=spf1 -all\"\n"),
        (&["+short", "example.org", "CAA"], "0 issue \"ca.example\"\n"),
        (&["+short", "example.org", "HTTPS"], "1 . alpn=\"h2,h3\" port=8443\n"),
        (&["+short", "example.org", "SOA"], "ns1.example.org. hostmaster.example.org. 1 3600 600 604800 60\n"),
        (&["+short", "_https._tcp.example.org", "SRV"], "1 2 8443 web.example.org.\n"),
        (&["+short", "wWw.example.org", "AAAA"], "web.example.org.\n2001:db8::1\n"),
        (&["+short", "a.b.wild.example.org"], "192.0.2.7\n"),
        (&["+short", "geo.example.org"], "192.0.2.1\n"),
        (&["+short", "+subnet=198.51.100.0/24", "geo.example.org"], "192.0.2.2\n"),
    ] {
        let Some(seen) = dig(port, arguments) else { return };
        assert_eq!(seen, wanted, "{arguments:?}");
    }
    for (arguments, parts) in [
        (
            &["+subnet=198.51.100.0/24", "geo.example.org"][..],
            &["CLIENT-SUBNET: 198.51.100.0/24/24", "status: NOERROR"][..],
        ),
        (&["+subnet=198.51.100.0/24", "mail.example.org"], &["CLIENT-SUBNET: 198.51.100.0/24/0"]),
        (&["+subnet=2001:db8::/56", "geo.example.org"], &["CLIENT-SUBNET: 2001:db8::/56/56"]),
        (&["none.example.org"], &["status: NXDOMAIN", "flags: qr aa rd;", "SOA\tns1.example.org."]),
        (&["web.example.org", "MX"], &["status: NOERROR", "ANSWER: 0, AUTHORITY: 1"]),
        (&["example.net"], &["status: REFUSED"]),
        (&["example.org", "AXFR"], &["Transfer failed"]),
        (&["version.bind", "CH", "TXT"], &["status: REFUSED"]),
        (
            &["+noall", "+comments", "+edns=1", "+noednsneg", "web.example.org"],
            &["status: BADVERS", "EDNS: version: 0"],
        ),
        (&["+opcode=NOTIFY", "example.org", "SOA"], &["status: NOTIMP"]),
        (&["+tcp", "+keepopen", "web.example.org"], &["status: NOERROR", "192.0.2.1"]),
        (&["big.example.org", "TXT"], &["Truncated, retrying in TCP mode", "status: NOERROR", "ANSWER: 1"]),
        (&["example.org", "ANY", "+notcp"], &["HINFO\t\"RFC8482\" \"\""]),
        (&["+dnssec", "web.example.org"], &["status: NOERROR", "flags: do;"]),
    ] {
        let Some(seen) = dig(port, arguments) else { return };
        assert!(parts.iter().all(|part| seen.contains(part)), "{arguments:?}\n{seen}");
        assert!(!seen.contains("Warning") && !seen.contains("malformed"), "{arguments:?}\n{seen}");
    }
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn dig_asks_over_tls() {
    let (port, secure) = (free_port(), free_port());
    let tls = format!("listen 127.0.0.1:{secure} ssl; ssl_certificate a.crt; ssl_certificate_key a.key;");
    let site = site(port, "", &tls, RECORDS);
    site.certify();
    let running = site.start();
    let Some(seen) = dig(secure, &["+tls", "+short", "example.org", "MX"]) else { return };
    assert_eq!(seen, "10 mail.example.org.\n");
    running.quit();
}
