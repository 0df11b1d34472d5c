//! Several servers on one TLS listener: which server's rules apply while a request is read, if the handshake and the
//! request name different ones.

use crate::server::{Binary, ServerRun};
use crate::{Dice, Plan, normal, site};
use cases::Wire;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(15);

/// Lines of a server that take effect while a request is read, or show which server answers.
const LINES: &[&str] = &[
    "merge_slashes off;",
    "underscores_in_headers on;",
    "ignore_invalid_headers off;",
    "error_page 400 =200 /own.txt;",
    "error_page 404 /own.txt;",
    "large_client_header_buffers 2 1k;",
    "client_max_body_size 2;",
    "server_tokens off;",
    "return 301 https://$server_name$request_uri;",
    "add_header X-Args $args;",
    "keepalive_timeout 0;",
    "absolute_redirect off;",
    "ssl_protocols TLSv1.2;",
    "default_type text/own;",
];

/// Names in handshakes.
const NAMES: [&str; 4] = ["a.test", "b.test", "c.test", "localhost"];

/// `@host` is the name of the request.
const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: @host\r\nConnection: close\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: @host\r\nConnection: close\r\n\r\n",
    "GET //a//b HTTP/1.1\r\nHost: @host\r\nConnection: close\r\n\r\n",
    "GET /%zz HTTP/1.1\r\nHost: @host\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET /x HTTP/1.1\r\nX_Under: 1\r\nHost: @host\r\nConnection: close\r\n\r\n",
    "GET /x HTTP/1.1\r\nX Y: 1\r\nHost: @host\r\nConnection: close\r\n\r\n",
    "GET /@2000 HTTP/1.1\r\nHost: @host\r\nConnection: close\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: @host\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    "GET https://@host/x HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n",
];

struct Server {
    name: &'static str,
    lines: Vec<&'static str>,
}

fn conf(servers: &[Server], identity: (&str, &str), binary: &Binary, folder: &str, port: u16) -> String {
    let one = |(index, server): (usize, &Server)| {
        format!(
            "server {{ listen 127.0.0.1:@port ssl{}; server_name {name}; {} location /own.txt {{ return 200 'own {name}'; }} \
             location / {{ return 200 '{name} $uri $http_x_under $server_name'; }} }}\n    ",
            if index == 0 { " default_server" } else { "" },
            server.lines.join(" "),
            name = server.name,
        )
    };
    let servers: String = servers.iter().enumerate().map(one).collect();
    let text = format!(
        "{head}
http {{
    {own}
    log_format asked '$server_name [$request] $status $body_bytes_sent';
    access_log @dir/access.log asked;
    ssl_certificate 'data:{certificate}';
    ssl_certificate_key 'data:{key}';
    {servers}
}}
",
        head = site::main_lines(),
        own = if binary.nginx { "" } else { "server_identity nginx;" },
        certificate = identity.0,
        key = identity.1,
    );
    text.replace("@dir", folder).replace("@port", &port.to_string())
}

fn ask(port: u16, name: &str, request: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut wire = Wire::named(port, name, "http/1.1", PATIENCE)?;
    if let Err(words) = wire.send(request) {
        return Ok(format!("<{words}>").into_bytes());
    }
    loop {
        match wire.receive(&mut out) {
            Ok(true) => {}
            Ok(false) => return Ok(out),
            Err(words) => {
                out.extend_from_slice(format!("<{words}>").as_bytes());
                return Ok(out);
            }
        }
    }
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Lists the differences with their servers, or says why the servers could not run.
pub fn compare_sni(plan: &Plan) -> Result<String, String> {
    let identity = cases::test_identity()?;
    let (mut differences, mut answers) = (Vec::new(), 0);
    for index in 0..plan.count {
        if differences.len() >= plan.differences_max {
            break;
        }
        let mut dice = Dice::new(plan.seed.wrapping_add(index));
        let servers: Vec<Server> = NAMES[..3]
            .iter()
            .map(|name| {
                let lines = (0..dice.below(3)).map(|_| LINES[dice.below(LINES.len())]);
                let mut lines: Vec<&str> = lines.collect();
                lines.sort_unstable();
                lines.dedup();
                Server { name, lines }
            })
            .collect();
        // Each request with a pair of names: those of the handshake and of the request.
        let asks: Vec<(&str, String)> = REQUESTS
            .iter()
            .map(|text| {
                let (name, host) = (NAMES[dice.below(NAMES.len())], NAMES[dice.below(NAMES.len())]);
                (name, text.replace("@host", host).replace("@2000", &"a".repeat(2000)))
            })
            .collect();
        let of = |binary: &Binary| {
            let all = |port: u16| asks.iter().map(|(name, text)| ask(port, name, text.as_bytes())).collect();
            ServerRun::with(
                binary,
                &|dirs, port| conf(&servers, identity, binary, &dirs.folder.display().to_string(), port),
                &all,
                None,
            )
        };
        let (theirs, ours) = (of(&plan.nginx)?, of(&plan.ours)?);
        answers += theirs.answers.len();
        let shown: Vec<String> = asks.iter().map(|(name, text)| format!("SNI {name}: {:.100?}", text)).collect();
        if let Some(words) = normal::first_difference(&shown, &theirs, &ours) {
            let lines = servers.iter().map(|server| format!("    {}: {}\n", server.name, server.lines.join(" ")));
            differences.push(format!("seed {}:\n{}{words}", plan.seed.wrapping_add(index), lines.collect::<String>()));
        }
    }
    let summary =
        format!("{} configurations with SNI, {answers} answers compared with {}", plan.count, plan.nginx.shown);
    crate::result(summary, &differences)
}
