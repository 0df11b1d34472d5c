//! Health checks speak the protocol of their location: one Tidegate checks another.

use crate::support;

use support::client::Client;
use support::{Site, free_port, wait};

/// A location's protocol.
struct Spoken {
    pass: &'static str,
    listen: &'static str,
    protocol: &'static str,
}

const ALL: &[Spoken] = &[
    Spoken { pass: "proxy_pass http://", listen: "", protocol: "HTTP/1.1" },
    Spoken { pass: "proxy_pass https://", listen: "ssl", protocol: "HTTP/1.1" },
    Spoken { pass: "proxy_http_version 2; proxy_pass http://", listen: "", protocol: "HTTP/2.0" },
    Spoken { pass: "proxy_http_version 2; proxy_pass https://", listen: "ssl", protocol: "HTTP/2.0" },
    Spoken { pass: "proxy_http_version 3; proxy_pass https://", listen: "quic", protocol: "HTTP/3.0" },
    Spoken { pass: "grpc_pass grpc://", listen: "", protocol: "HTTP/2.0" },
    Spoken { pass: "grpc_pass grpcs://", listen: "ssl", protocol: "HTTP/2.0" },
];

#[test]
fn checks_speak_the_protocol_of_their_location() {
    let (origin, front) = (Site::new("", ""), Site::new("", ""));
    let certificate = origin.certify();
    front.write("conf/ca.crt", &certificate);
    front.certify();
    let ports: Vec<u16> = ALL.iter().map(|_| free_port()).collect();
    let servers = |health: &str| {
        let each = ALL.iter().zip(&ports).map(|(spoken, port)| {
            let Spoken { listen, protocol, .. } = spoken;
            format!(
                "server {{ listen 127.0.0.1:{port} {listen};
                 if ($server_protocol != {protocol}) {{ return 505; }}
                 location / {{ return 200 passed; }}
                 location /health {{ access_log checks.log checks; add_header X-Health $ssl_client_s_dn$http_x_own;
                     {health} }} }}"
            )
        });
        let each: String = each.collect();
        format!(
            "http {{ http2 on; ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client optional_no_ca;
             log_format checks '$server_port $connection_requests.'; {each} }}"
        )
    };
    let well = "return 200 \"$server_protocol $request_method $request_uri $host\\n\";";
    origin.configure("daemon off;", &servers(well));
    let port = free_port();
    let mut areas = String::new();
    for (n, (Spoken { pass, listen, protocol }, to)) in ALL.iter().zip(&ports).enumerate() {
        let keepalive = if n % 2 == 0 { "keepalive_time=1m" } else { "" };
        let own = if listen.is_empty() { "\"^own$\"" } else { "\"^CN=.*own$\"" };
        areas.push_str(&format!(
            "upstream u{n} {{ zone u{n} 64k; server 127.0.0.1:{to}; }}
             match well{n} {{ status 200-299 404; header x-health ~ {own}; header ! x-none; require $upstream_http_x_health;
                 body ~ \"^{protocol} GET /health\\?a=b checked\\n\"; }}
             server {{ listen 127.0.0.1:{port}; server_name s{n};
                 location / {{ {pass}u{n}; health_check uri=/health?a=b interval=20ms mandatory match=well{n} {keepalive}; }} }}\n"
        ));
    }
    front.configure(
        "daemon off; worker_processes 1;",
        &format!(
            "http {{ proxy_set_header X-Own own; proxy_set_header Host checked;
             grpc_set_header X-Own own; grpc_set_header Host checked;
             proxy_ssl_name localhost; proxy_ssl_server_name on; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.crt;
             proxy_ssl_certificate a.crt; proxy_ssl_certificate_key a.key;
             grpc_ssl_name localhost; grpc_ssl_server_name on; grpc_ssl_verify on; grpc_ssl_trusted_certificate ca.crt;
             grpc_ssl_certificate a.crt; grpc_ssl_certificate_key a.key; {areas} }}"
        ),
    );
    let of_server = |n: usize| {
        let request = format!("GET / HTTP/1.1\r\nHost: s{n}\r\nConnection: close\r\n\r\n");
        Client::connect(port).and_then(|mut client| client.ask(&request)).unwrap_or_else(|e| (0, e))
    };
    let runs = origin.start();
    let checks = front.start();
    for n in 0..ALL.len() {
        wait(&format!("server {n}"), || match of_server(n) {
            (200, body) if body == "passed" => Ok(()),
            other => Err(format!("{other:?} {}", front.log())),
        });
    }
    // Connections are kept as configured.
    for (n, to) in ports.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
        wait(&format!("a third check over one connection to server {n}"), || {
            let log = origin.read("checks.log");
            if log.contains(&format!("{to} 3.")) { Ok(()) } else { Err(log) }
        });
    }
    let log = origin.read("checks.log");
    for (_, to) in ports.iter().enumerate().filter(|(n, _)| n % 2 == 1) {
        assert!(
            log.lines().filter(|line| line.starts_with(&to.to_string())).all(|line| line.ends_with(" 1.")),
            "{log}"
        );
    }
    // Their failure is that of the response.
    origin.configure("daemon off;", &servers("return 503;"));
    runs.signal("HUP");
    for (n, to) in ports.iter().enumerate() {
        front.wait_for_log(&format!("health check: 127.0.0.1:{to} of upstream \"u{n}\" is unhealthy: status 503"), 1);
        assert_eq!(of_server(n).0, 502, "server {n}");
    }
    origin.configure("daemon off;", &servers(well));
    runs.signal("HUP");
    for (n, to) in ports.iter().enumerate() {
        front.wait_for_log(&format!("health check: 127.0.0.1:{to} of upstream \"u{n}\" is healthy"), 2);
    }
    checks.quit();
    runs.quit();
    front.assert_no_alerts();
}

#[test]
fn checks_use_the_method_and_the_address_of_their_location() {
    let (origin, port) = (free_port(), free_port());
    let site = Site::new(
        "daemon off;",
        &format!(
            "http {{ log_format checks '$request_method $connection_requests.';
             upstream u {{ zone u 64k; server 127.0.0.1:{origin}; }} match well {{ status 200; }}
             server {{ listen 127.0.0.1:{origin}; if ($remote_addr != 127.0.0.9) {{ return 403; }}
                 location / {{ access_log checks.log checks; return 200 \"a body\"; }} }}
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_method HEAD; proxy_bind 127.0.0.9; proxy_pass http://u;
                 health_check interval=20ms mandatory keepalive_time=1m match=well; }} }} }}"
        ),
    );
    let running = site.start();
    site.wait_for_log(&format!("health check: 127.0.0.1:{origin} of upstream \"u\" is healthy"), 1);
    wait("a third check over one connection", || {
        let log = site.read("checks.log");
        if log.contains("HEAD 3.") { Ok(()) } else { Err(log) }
    });
    running.quit();
    site.assert_no_alerts();
}
