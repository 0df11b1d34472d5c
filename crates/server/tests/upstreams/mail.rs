//! The mail area over real sockets: logins at servers, what authentication servers and mail servers may do, clients that do
//! not keep to the rules, reloads and shutdowns. Against clients that others have written see `mail_clients.rs`.

use crate::support;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use support::mail::{Client, auth, imap_server, line, pass_to, pop3_server, server, smtp_server};
use support::{Site, free_port, private_kb, text, wait};

/// "user" and "secret", as AUTH PLAIN has them.
const PLAIN: &str = "AHVzZXIAc2VjcmV0";

/// Servers of the three protocols with the same authentication server.
struct Ports {
    imap: u16,
    pop3: u16,
    smtp: u16,
}

/// A site with a server for each protocol; `more` holds for all three.
fn site(auth: u16, more: &str) -> (Site, Ports) {
    let ports = Ports { imap: free_port(), pop3: free_port(), smtp: free_port() };
    let mut servers = String::new();
    for (protocol, port) in [("imap", ports.imap), ("pop3", ports.pop3), ("smtp", ports.smtp)] {
        let _ = write!(servers, "server {{ listen 127.0.0.1:{port}; protocol {protocol}; }} ");
    }
    let site = Site::new(
        "daemon off;",
        &format!("mail {{ auth_http 127.0.0.1:{auth}/check; server_name mx.example; {more} {servers} }}"),
    );
    (site, ports)
}

/// Sends the greeting command of each protocol; returns the response.
fn log_in(ports: &Ports, protocol: &str) -> (Client, String) {
    match protocol {
        "imap" => {
            let mut client = Client::greeted(ports.imap);
            let answer = client.ask("a1 LOGIN user secret");
            (client, answer)
        }
        "pop3" => {
            let mut client = Client::greeted(ports.pop3);
            assert_eq!(client.ask("USER user"), "+OK");
            let answer = client.ask("PASS secret");
            (client, answer)
        }
        _ => {
            let mut client = Client::greeted(ports.smtp);
            let answer = client.ask(&format!("AUTH PLAIN {PLAIN}"));
            (client, answer)
        }
    }
}

const INTERNAL: [(&str, &str); 3] = [
    ("imap", "* BAD internal server error"),
    ("pop3", "-ERR internal server error"),
    ("smtp", "451 4.3.2 Internal server error"),
];

#[test]
fn clients_are_logged_in_and_passed_in_every_protocol() {
    let ((imap, told_imap), (pop3, told_pop3), (smtp, told_smtp)) = (imap_server(true), pop3_server(), smtp_server());
    let (auth, told) = auth(move |request| {
        let port = match request {
            r if r.contains("Auth-Protocol: imap") => imap,
            r if r.contains("Auth-Protocol: pop3") => pop3,
            _ => smtp,
        };
        pass_to(port, "Auth-User: user two\r\nAuth-Pass: pass%word\r\n")
    });
    let (site, ports) = site(auth, "auth_http_header X-Key \"a b\"; ");
    let running = site.start();

    let (mut imap, answer) = log_in(&ports, "imap");
    assert_eq!(answer, "* CAPABILITY X");
    assert_eq!(imap.line(), "a1 OK in");
    assert_eq!(imap.ask("a2 SELECT"), "a2 OK echo");
    assert_eq!(told_imap.take(), ["a1 LOGIN {8}", "user two {9}", "pass%word", "a2 SELECT"]);
    let request = "GET /check HTTP/1.0\nHost: 127.0.0.1\nAuth-Method: plain\nAuth-User: user\nAuth-Pass: secret\n\
                   Auth-Protocol: imap\nAuth-Login-Attempt: 1\nClient-IP: 127.0.0.1\nX-Key: a b\n";
    assert_eq!(told.take(), [request]);

    let (mut pop3, answer) = log_in(&ports, "pop3");
    assert_eq!(answer, "+OK PASS");
    assert_eq!(pop3.ask("LIST"), "+OK LIST");
    assert_eq!(told_pop3.take(), ["USER user two", "PASS pass%word", "LIST"]);

    let (mut smtp, answer) = log_in(&ports, "smtp");
    assert_eq!(answer, "235 2.0.0 OK");
    assert_eq!(smtp.ask("MAIL FROM:<a>"), "250 ok");
    let want = ["EHLO mx.example", "XCLIENT ADDR=127.0.0.1 LOGIN=user+20two NAME=[UNAVAILABLE]", "MAIL FROM:<a>"];
    assert_eq!(told_smtp.take(), want);
    assert!(told.take().concat().contains("Client-Host: [UNAVAILABLE]\n"));

    // Bytes behind the login in one packet go to the server.
    let mut client = Client::greeted(ports.pop3);
    client.send("USER user\r\nPASS secret\r\nLIST\r\nQUIT\r\n");
    let answers: Vec<String> = (0..4).map(|_| client.line()).collect();
    assert_eq!(answers, ["+OK", "+OK PASS", "+OK LIST", "+OK QUIT"]);

    drop((client, imap, pop3, smtp));
    running.quit();
    site.assert_no_alerts();
    let log = site.log();
    for words in
        ["client logged in, client: 127.0.0.1, server: 127.0.0.1:", "login: \"user two\"", "proxied session done"]
    {
        assert!(log.contains(words), "{words} in {log}");
    }
}

#[test]
fn a_login_that_is_refused_may_be_tried_again_when_there_is_a_wait() {
    let (pop3, _) = pop3_server();
    let (auth, told) = auth(move |request| match request {
        r if r.contains("Auth-Login-Attempt: 1\n") && r.contains("Auth-User: again") => {
            "HTTP/1.0 200 OK\r\nAuth-Status: not yet\r\nAuth-Wait: 1\r\n\r\n".into()
        }
        r if r.contains("Auth-User: again") => pass_to(pop3, ""),
        r if r.contains("Auth-Protocol: smtp") => {
            "HTTP/1.0 200 OK\r\nAuth-Status: later\r\nAuth-Error-Code: 451 4.3.0\r\nAuth-User: known\r\n\r\n".into()
        }
        _ => "HTTP/1.0 200 OK\r\nAuth-Status: Invalid login or password\r\n\r\n".into(),
    });
    let (site, ports) = site(auth, "");
    let running = site.start();
    for (protocol, want) in [
        ("imap", "a1 NO Invalid login or password"),
        ("pop3", "-ERR Invalid login or password"),
        ("smtp", "451 4.3.0 later"),
    ] {
        let (mut client, answer) = log_in(&ports, protocol);
        assert_eq!((answer.as_str(), client.rest().as_str()), (want, ""));
    }
    let mut client = Client::greeted(ports.pop3);
    assert_eq!(client.ask("USER again"), "+OK");
    assert_eq!(client.ask("PASS x"), "-ERR not yet");
    assert_eq!(client.ask("USER again"), "+OK");
    assert_eq!(client.ask("PASS x"), "+OK PASS");
    assert_eq!(told.count(), 5);
    drop(client);
    running.quit();
    site.assert_no_alerts();
    assert!(site.log().contains("client login failed: \"not yet\" while in http auth state"), "{}", site.log());
    let known =
        site.log().lines().any(|line| line.contains("login failed: \"later\"") && line.contains("login: \"known\""));
    assert!(known, "{}", site.log());
}

#[test]
fn authentication_servers_that_do_not_do_their_part() {
    let dead = free_port();
    let (auth, _) = auth(move |request| {
        let field = |name: &str| request.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        match field("Auth-User: ") {
            "garbage" => "\u{1}\u{2}\r\n\r\n".into(),
            "half" => "HTTP/1.0 200 OK\r\nAuth-Sta".into(),
            "nothing" => String::new(),
            "huge" => format!("HTTP/1.0 200 OK\r\nX: {}", "x".repeat(1_000_000)),
            "endless" => "X: y\r\n".repeat(100_000),
            "silent" => "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\n\r\n".into(),
            "name" => "Auth-Status: OK\r\nAuth-Server: localhost\r\nAuth-Port: 25\r\nAuth-Pass: x\r\n\r\n".into(),
            "port" => "Auth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: 99999\r\nAuth-Pass: x\r\n\r\n".into(),
            "first" => "Auth-Status: OK\r\nAuth-Server: localhost\r\nAuth-Port: 99999\r\n\r\n".into(),
            "status" => "HTTP/1.0 200 OK\rX\r\n\r\n".into(),
            "password" => pass_to(dead, ""),
            "dead" => pass_to(dead, "Auth-Pass: x\r\n"),
            "slow" => loop {
                std::thread::park();
            },
            "null" => "Auth-Status: OK\r\nAuth-User: a\0b\r\n\r\n".into(),
            other => panic!("{other}"),
        }
    });
    let (site, ports) = site(auth, "auth_http_timeout 100ms; pop3_auth plain apop;");
    let running = site.start();
    for (user, words) in [
        ("garbage", "sent invalid header in response"),
        ("half", "prematurely closed connection"),
        ("nothing", "prematurely closed connection"),
        ("huge", "sent too large response"),
        ("endless", "sent too large response"),
        ("silent", "did not send server or port"),
        ("name", "sent invalid server address:\"localhost\""),
        ("port", "sent invalid server port:\"99999\""),
        ("password", "did not send password"),
        // As in nginx, before server and port are read.
        ("first", "did not send password"),
        ("status", "sent invalid response while in http auth state"),
        ("dead", "connect() failed (111: Connection refused) while connecting to upstream"),
        ("slow", "timed out (110: Connection timed out)"),
        ("null", "sent invalid header in response"),
    ] {
        let mut client = Client::greeted(ports.pop3);
        // A digest is no password.
        let answer = client.ask(&format!("APOP {user} 0123456789abcdef"));
        assert_eq!((answer.as_str(), client.rest().as_str()), ("-ERR internal server error", ""), "{user}");
        let log = site.log();
        assert!(log.lines().any(|line| line.contains(words) && line.contains(user)), "{user}: {words} in {log}");
    }
    running.quit();
    site.assert_no_alerts();
    let (site, ports) = self::site(free_port(), "");
    let running = site.start();
    for (protocol, want) in INTERNAL {
        let (mut client, answer) = log_in(&ports, protocol);
        assert_eq!((answer.as_str(), client.rest().as_str()), (want, ""));
    }
    running.quit();
    assert!(site.log().contains("connect() failed (111: Connection refused), auth http server"), "{}", site.log());
}

#[test]
fn mail_servers_that_do_not_do_their_part() {
    let nonsense = server(|mut reader| {
        let _ = reader.get_mut().write_all(b"what?\r\n");
        line(&mut reader);
    });
    let closes = server(|_| {});
    let long = server(|mut reader| {
        let _ = reader.get_mut().write_all(&[b'x'; 100_000]);
        line(&mut reader);
    });
    let silent = server(|mut reader| {
        line(&mut reader);
    });
    let refuses = server(|mut reader| {
        let _ = reader.get_mut().write_all(b"* OK\r\n");
        line(&mut reader);
        let _ = reader.get_mut().write_all(b"a1 NO not you\r\n");
        line(&mut reader);
    });
    for (port, words, shown) in [
        (free_port(), "connect() failed (111: Connection refused) while connecting to upstream", None),
        (nonsense, "upstream sent invalid response: \"what?\" while reading response from upstream", Some("what?")),
        (closes, "upstream prematurely closed connection", None),
        (long, "upstream sent too long response line", None),
        (silent, "upstream timed out (110: Connection timed out)", None),
        (refuses, "upstream sent invalid response: \"a1 NO not you\"", Some("a1 NO not you")),
    ] {
        for pass in [false, true] {
            let (auth, _) = auth(move |_| pass_to(port, ""));
            let more = if pass { "proxy_pass_error_message on; timeout 200ms;" } else { "timeout 200ms;" };
            let (site, ports) = site(auth, more);
            let running = site.start();
            let (mut client, answer) = log_in(&ports, "imap");
            let want = shown.filter(|_| pass).unwrap_or("* BAD internal server error");
            assert_eq!((answer.as_str(), client.rest().as_str()), (want, ""), "{words}");
            running.quit();
            site.assert_no_alerts();
            let log = site.log();
            assert!(log.contains(words) && log.contains(&format!("upstream: 127.0.0.1:{port}")), "{words} in {log}");
        }
    }
}

/// Names and passwords become fields of the request to the authentication server, and commands to mail servers.
#[test]
fn nothing_that_a_client_says_becomes_a_field_or_a_command_of_its_own() {
    let ((imap, told_imap), (smtp, told_smtp)) = (imap_server(true), smtp_server());
    let (auth, told) = auth(move |request| pass_to(if request.contains(": imap\n") { imap } else { smtp }, ""));
    let (site, ports) = site(auth, "smtp_auth plain login none;");
    let running = site.start();
    let mut client = Client::greeted(ports.imap);
    client.send("a LOGIN {14+}\r\nu\r\nX-Evil: yes! p\r\n");
    assert_eq!(client.line(), "a BAD invalid command");
    // "\0u\r\nDELE 1\0p"
    assert_eq!(client.ask("b AUTHENTICATE PLAIN AHUNCkRFTEUgMQBw"), "b BAD invalid command");
    assert_eq!(told.count(), 0, "nobody was asked");
    assert_eq!(client.ask("c LOGIN \"u %\tx\" \"p\u{7f}{\""), "* CAPABILITY X");
    assert_eq!(told_imap.take(), ["c LOGIN {5}", "u %\tx {3}", "p\u{7f}{"]);
    assert!(told.take().concat().contains("Auth-User: u%20%25%09x\nAuth-Pass: p\u{7f}{\nAuth-Protocol"));
    drop(client);
    let mut client = Client::greeted(ports.smtp);
    for (command, want) in [
        ("EHLO a\rb", "500 5.5.1 Invalid command"),
        ("EHLO a\0b", "500 5.5.1 Invalid command"),
        ("HELO me", "250 mx.example"),
        ("MAIL FROM:<a>\rRCPT TO:<b>", "500 5.5.1 Invalid command"),
        ("MAIL FROM:<a>", "250 2.0.0 OK"),
        ("RCPT TO:<b>", "250 ok"),
    ] {
        assert_eq!(client.ask(command), want, "{command:?}");
    }
    let want =
        ["EHLO mx.example", "XCLIENT ADDR=127.0.0.1 NAME=[UNAVAILABLE]", "HELO me", "MAIL FROM:<a>", "RCPT TO:<b>"];
    assert_eq!(told_smtp.take(), want);
    let request = told.take().concat();
    for field in [
        "Auth-Method: none\n",
        "Auth-SMTP-Helo: me\n",
        "Auth-SMTP-From: MAIL FROM:<a>\n",
        "Auth-SMTP-To: RCPT TO:<b>\n",
    ] {
        assert!(request.contains(field), "{field} in {request}");
    }
    drop(client);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn clients_that_drip_flood_and_never_end() {
    const COMMANDS: usize = 50_000;
    let (imap, _) = imap_server(true);
    let (auth, _) = auth(move |_| pass_to(imap, ""));
    let (site, ports) = site(auth, "max_errors 3; imap_client_buffer 1k;");
    let running = site.start();
    let mut client = Client::greeted(ports.imap);
    for byte in b"a1 LOGIN {4}\r\nuser \"secret\"\r\n" {
        client.send([*byte]);
    }
    assert_eq!((client.line().as_str(), client.line().as_str()), ("+ OK", "* CAPABILITY X"));
    drop(client);
    // More than all buffers, answered one by one.
    let mut client = Client::greeted(ports.imap);
    let mut writer = client.stream().try_clone().expect("a copy");
    let thread = std::thread::spawn(move || writer.write_all("z NOOP\r\n".repeat(COMMANDS).as_bytes()));
    for _ in 0..COMMANDS {
        assert_eq!(client.line(), "z OK completed");
    }
    thread.join().expect("the writer").expect("written");
    drop(client);
    // A command without an end, and too many that are none.
    let mut client = Client::greeted(ports.imap);
    client.send(format!("a1 LOGIN {}", "x".repeat(1024 - 9)));
    assert_eq!(client.rest(), "a1 BAD invalid command\r\n");
    let mut client = Client::greeted(ports.imap);
    client.send("a1 LOGIN {99999}\r\n");
    assert_eq!(client.line(), "+ OK");
    client.send("x".repeat(1024 - 18));
    assert_eq!(client.rest(), "a1 BAD invalid command\r\n");
    let mut client = Client::greeted(ports.pop3);
    client.send("X\r\nX\r\nX\r\nNOOP\r\n");
    assert_eq!(client.rest(), "-ERR invalid command\r\n".repeat(3));
    running.quit();
    site.assert_no_alerts();
    let log = site.log();
    for words in ["client sent too long command \"a1 LOGIN xxx", "client sent too many invalid commands"] {
        assert!(log.contains(words), "{words} in {log}");
    }
}

/// A reset could discard replies that the client has not read.
#[test]
fn unread_commands_do_not_reset_the_connection() {
    let (auth, _) = auth(|_| String::new());
    let (site, ports) = site(auth, "");
    let running = site.start();
    let unread = "x".repeat(2_000);
    for (port, command, want) in [
        (ports.imap, "a LOGOUT", "* BYE\r\na OK completed\r\n"),
        (ports.imap, "a LOGIN u p", "* BAD internal server error\r\n"),
        (ports.pop3, "QUIT", "+OK\r\n"),
        (ports.smtp, "QUIT", "221 2.0.0 Bye\r\n"),
    ] {
        let mut client = Client::greeted(port);
        client.send(format!("{command}\r\n{unread}\r\n"));
        let mut all = Vec::new();
        client.stream().read_to_end(&mut all).expect("no reset");
        assert_eq!(text(&all), want, "{command}");
    }
    running.quit();
    site.assert_no_alerts();
}

/// A record of TLS arrives as a whole. The mail server's header has the facts of the client's connection.
#[test]
fn commands_in_tls_keep_their_limit_and_servers_get_its_facts() {
    let (told, header) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let imap = server(move |mut reader| {
        let mut fixed = [0; 16];
        reader.read_exact(&mut fixed).expect("a header");
        let mut rest = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
        reader.read_exact(&mut rest).expect("its fields");
        let _ = told.lock().expect("not poisoned").send([&fixed[..], &rest].concat());
        let _ = reader.get_mut().write_all(b"* BYE\r\n");
    });
    let (auth, _) = auth(move |_| pass_to(imap, ""));
    let port = free_port();
    let site = Site::new(
        "daemon off;",
        &format!(
            "mail {{ auth_http 127.0.0.1:{auth}; ssl_certificate own.crt; ssl_certificate_key own.key; proxy_protocol v2;
             server {{ listen 127.0.0.1:{port} ssl; protocol imap; imap_client_buffer 1k; }} }}"
        ),
    );
    let (certificate, key) = cases::test_identity().expect("made");
    std::fs::write(site.path("conf/own.crt"), certificate).expect("a file");
    std::fs::write(site.path("conf/own.key"), key).expect("a file");
    let running = site.start();
    let ask = |command: &str| {
        let mut wire = cases::Wire::connect(port, Some("imap"), std::time::Duration::from_secs(20)).expect("connected");
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n") {
            assert!(wire.receive(&mut all).expect("a greeting"));
        }
        all.clear();
        wire.send(command.as_bytes()).expect("sent");
        while wire.receive(&mut all).expect("an answer") {}
        text(&all)
    };
    assert_eq!(ask(&format!("a1 LOGIN {}\r\na2 LOGOUT\r\n", "x".repeat(1024))), "a1 BAD invalid command\r\n");
    assert_eq!(ask("a1 LOGIN u p\r\n"), "* BAD internal server error\r\n");
    let header = header.recv().expect("a header");
    let (read, length) = wire_proxy::parse_header(&header).expect("valid").expect("whole");
    assert_eq!(length, header.len());
    assert_eq!(read.tlvs(&header).find(0x01), Ok(Some(&b"imap"[..])));
    assert_eq!(read.tlvs(&header).find(0x02), Ok(Some(&b"localhost"[..])));
    let info = read.ssl(&header).expect("valid").expect("an SSL field");
    assert_eq!((info.client, info.tlvs().find(0x21)), (1, Ok(Some(&b"TLSv1.3"[..]))));
    running.quit();
    site.assert_no_alerts();
    assert!(site.log().contains("client sent too long command \"a1 LOGIN xxx"), "{}", site.log());
}

#[test]
fn time_is_over_for_those_who_say_nothing_and_early_for_those_who_do_not_wait() {
    let (auth, _) = auth(|_| String::new());
    let (early, early_ports) = site(auth, "smtp_greeting_delay 60s;");
    let running = early.start();
    let mut client = Client::new(early_ports.smtp);
    client.send("EHLO spam\r\n");
    assert_eq!(client.rest(), "503 5.5.0 Improper use of SMTP command pipelining\r\n");
    running.quit();
    let (site, ports) = site(auth, "timeout 100ms; smtp_greeting_delay 10ms;");
    let running = site.start();
    let mut client = Client::greeted(ports.imap);
    assert_eq!(client.rest(), "");
    let mut client = Client::new(ports.smtp);
    assert_eq!(client.rest(), "220 mx.example ESMTP ready\r\n");
    running.quit();
    let log = early.log() + &site.log();
    for words in [
        "client timed out (110: Connection timed out) while in auth state",
        "client was rejected before greeting: \"EHLO spam__\"",
    ] {
        assert!(log.contains(words), "{words} in {log}");
    }
}

#[test]
fn addresses_come_and_go_with_the_proxy_protocol() {
    let (smtp, told_smtp) = smtp_server();
    let (auth, told) = auth(move |_| pass_to(smtp, ""));
    let (believed, port) = (free_port(), free_port());
    let servers = format!(
        "mail {{ auth_http 127.0.0.1:{auth}; proxy_protocol on; smtp_auth none;
         server {{ listen 127.0.0.1:{believed} proxy_protocol; protocol smtp; set_real_ip_from 127.0.0.0/8; }}
         server {{ listen 127.0.0.1:{port} proxy_protocol; protocol smtp; }} }}"
    );
    let site = Site::new("daemon off;", &servers);
    let running = site.start();
    for (to, client_ip, proxy) in [
        (believed, "192.0.2.1", format!("PROXY TCP4 192.0.2.1 127.0.0.1 1234 {believed}")),
        (port, "127.0.0.1", format!("PROXY TCP4 127.0.0.1 127.0.0.1 PORT {port}")),
    ] {
        let mut client = Client::new(to);
        let own = client.stream().local_addr().expect("an address").port();
        client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 5678\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\n");
        client.line();
        assert_eq!((client.line().as_str(), client.line().as_str()), ("250 2.0.0 OK", "250 ok"));
        let said = told_smtp.take();
        assert_eq!(said.first().map(String::as_str), Some(proxy.replace("PORT", &own.to_string()).as_str()));
        assert_eq!(said.get(2), Some(&format!("XCLIENT ADDR={client_ip} NAME=[UNAVAILABLE]")));
        let request = told.take().concat();
        for field in [
            format!("Client-IP: {client_ip}\n"),
            "Proxy-Protocol-Addr: 192.0.2.1\nProxy-Protocol-Port: 1234\n".into(),
            "Proxy-Protocol-Server-Addr: 192.0.2.2\nProxy-Protocol-Server-Port: 5678\n".into(),
        ] {
            assert!(request.contains(&field), "{field} in {request}");
        }
    }
    let mut client = Client::new(port);
    client.send("EHLO me\r\n");
    assert_eq!(client.rest(), "", "it is no header");
    running.quit();
    site.assert_no_alerts();
    assert!(site.log().contains("while reading PROXY protocol, client: 127.0.0.1"), "{}", site.log());
}

#[test]
fn sessions_go_on_over_a_reload_and_end_with_a_shutdown() {
    let (imap, _) = imap_server(true);
    let (auth, _) = auth(move |_| pass_to(imap, ""));
    let (port, port_imap) = (free_port(), free_port());
    let conf = |name: &str| {
        format!(
            "mail {{ auth_http 127.0.0.1:{auth}; server_name {name};
             server {{ listen 127.0.0.1:{port}; protocol smtp; }}
             server {{ listen 127.0.0.1:{port_imap}; protocol imap; }} }}"
        )
    };
    let main = "daemon off; worker_shutdown_timeout 100ms;";
    let site = Site::new(main, &conf("old"));
    let running = site.start();
    let mut talking = Client::greeted(port);
    site.configure(main, &conf("new"));
    running.signal("HUP");
    wait("the new plan", || {
        let greeting = Client::new(port).line();
        if greeting == "220 new ESMTP ready" { Ok(()) } else { Err(greeting) }
    });
    // `worker_shutdown_timeout` is about those who were there before the reload.
    assert_eq!(talking.rest(), "");
    site.wait_for_log("is no longer used", 1);
    let mut passed = Client::greeted(port_imap);
    assert_eq!(passed.ask("a LOGIN u p"), "* CAPABILITY X");
    assert_eq!(passed.line(), "a OK in");
    running.signal("QUIT");
    assert_eq!(passed.rest(), "");
    assert!(running.ended().success());
    site.assert_no_alerts();
    assert!(site.log().contains("shutdown timeout while proxying, client: 127.0.0.1"), "{}", site.log());
}

#[test]
fn a_connection_is_passed_to_it_from_the_stream_area() {
    let (auth, _) = auth(|_| "HTTP/1.0 200 OK\r\nAuth-Status: no\r\n\r\n".into());
    let (stream, port) = (free_port(), free_port());
    let conf = format!(
        "stream {{ server {{ listen 127.0.0.1:{stream}; pass 127.0.0.1:{port}; }} }}
         mail {{ auth_http 127.0.0.1:{auth}; server {{ listen 127.0.0.1:{port}; protocol imap; }} }}"
    );
    let site = Site::new("daemon off;", &conf);
    let running = site.start();
    let mut client = Client::greeted(stream);
    assert_eq!(client.ask("a LOGIN u p"), "a NO no");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn faulty_mail_configurations_are_refused() {
    let site = Site::new("", "");
    let server = |inside: &str| format!("mail {{ auth_http 127.0.0.1:81; server {{ {inside} }} }}");
    for (conf, words) in [
        (server("protocol imap;"), "no \"listen\" is defined for server in"),
        (server("listen 127.0.0.1:8143;"), "unknown mail protocol for server in"),
        (server("listen 127.0.0.1:8143; protocol ftp;"), "unknown protocol \"ftp\" in"),
        (
            "mail { server { listen 127.0.0.1:8143; protocol imap; } }".into(),
            "no \"auth_http\" is defined for server in",
        ),
        (
            server("listen 127.0.0.1:8143 ssl; protocol imap;"),
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in",
        ),
        (
            server("listen 127.0.0.1:8143; protocol imap; starttls on;"),
            "no \"ssl_certificate\" is defined for the \"starttls\" directive in",
        ),
        (server("listen 127.0.0.1:8143; protocol imap; starttls maybe;"), "invalid value \"maybe\" in"),
        (
            server("listen 127.0.0.1:8143; listen 127.0.0.1:8143; protocol imap;"),
            "duplicate \"127.0.0.1:8143\" address and port pair in",
        ),
        (server("listen 127.0.0.1:8143 reuseport; protocol imap;"), "invalid parameter \"reuseport\" in"),
        (server("listen 127.0.0.1:8143; protocol imap; imap_auth kerberos;"), "invalid value \"kerberos\" in"),
        (
            server("listen 127.0.0.1:8143; protocol imap; auth_http http://no.such.host.invalid/;"),
            "host not found in auth_http \"no.such.host.invalid/\" in",
        ),
        (
            server("listen 127.0.0.1:8143; protocol imap; proxy_pass 127.0.0.1;"),
            "\"proxy_pass\" directive is not allowed here in",
        ),
        (
            format!(
                "{} http {{ server {{ listen 127.0.0.1:8143; }} }}",
                server("listen 127.0.0.1:8143; protocol imap;")
            ),
            "duplicate \"127.0.0.1:8143\" address and port pair",
        ),
    ] {
        site.configure("", &conf);
        let out = site.run(&["-t"]);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains(words), "{conf}: {said}");
    }
    // The port determines the protocol.
    for port in [143, 993, 110, 995, 25, 465, 587] {
        site.configure("", &server(&format!("listen 127.0.0.1:{port};")));
        let out = site.run(&["-t"]);
        let said = text(&out.stderr);
        assert!(said.contains("syntax is ok"), "{port}: {said}");
    }
}

#[test]
fn idle_sessions_cost_little() {
    const SESSIONS: usize = 500;
    /// The budget of a client that is in the middle of a command.
    const IDLE_KB_MAX: f64 = 3.0;
    let (auth, _) = auth(|_| String::new());
    let (site, ports) = site(auth, "");
    let conf = site.read("conf/nginx.conf").replace("events { }", "events { worker_connections 4096; }");
    site.write("conf/nginx.conf", &conf);
    let running = site.start();
    let begin = |n: usize| -> Vec<Client> {
        let one = |_| {
            let mut client = Client::greeted(ports.imap);
            assert_eq!(client.ask("a NOOP"), "a OK completed");
            client.send("b LOGIN us");
            client
        };
        (0..n).map(one).collect()
    };
    // The first sessions allocate the thread's own memory.
    let warm = begin(50);
    let before = private_kb(running.worker());
    let all = begin(SESSIONS);
    let kb = (private_kb(running.worker()).saturating_sub(before)) as f64 / SESSIONS as f64;
    assert!(kb < IDLE_KB_MAX, "an idle session costs {kb:.1} KB");
    drop((warm, all));
    running.quit();
    site.assert_no_alerts();
}
