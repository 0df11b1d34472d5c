//! Compares TLS servers: random `ssl_*` directives in servers of the http and stream areas, and clients that speak several versions,
//! offer other algorithms, names and protocols, show certificates of many kinds, resume sessions, send early data, ask for a new
//! handshake, or send bytes that are none. Everything that a client sees, and its lines of both logs, are compared.
//!
//! Each client has an address of its own, by which lines of the logs are found. `openssl s_client` is the client: rustls has neither
//! session ids of its own nor sessions for other names.

mod client;
mod identities;
mod known;
mod pool;
mod talk;

use crate::server::{Binary, Dirs, ServerRun};
use crate::stream::without_ports;
use crate::{Dice, Plan, normal};
use client::Client;
use identities::Identities;
use pool::{TlsFragment, TlsPlace};
use talk::MARK;

/// Clients of one configuration.
const CLIENTS: u8 = 24;

/// A directive in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TlsPut {
    text: &'static str,
    place: TlsPlace,
}

/// Returns the names of a fragment's directives; `ssl_conf_command` counts with its first word.
fn names(text: &str) -> Vec<String> {
    let name = |directive: &str| {
        let mut words = directive.split_whitespace();
        let first = words.next()?;
        let command = words.next().filter(|_| first == "ssl_conf_command");
        Some(format!("{first} {}", command.unwrap_or_default()))
    };
    text.split(';').filter_map(name).collect()
}

/// Directives that make up one configuration; a place has a directive once.
fn draw(dice: &mut Dice, pool: &[TlsFragment], first: &[TlsFragment]) -> Vec<TlsPut> {
    const MOST: usize = 8;
    let count = 2 + dice.below(MOST);
    let mut puts: Vec<TlsPut> = Vec::new();
    for index in 0..count {
        let pool = if index == 0 { first } else { pool };
        let Some(fragment) = pool.get(dice.below(pool.len())) else { continue };
        let Some(place) = fragment.places.get(dice.below(fragment.places.len())) else { continue };
        let own = names(fragment.text);
        if !puts.iter().any(|put| put.place == *place && names(put.text).iter().any(|name| own.contains(name))) {
            puts.push(TlsPut { text: fragment.text, place: *place });
        }
    }
    puts
}

/// Variables of both areas.
const VARIABLES: [&str; 19] = [
    "ssl_protocol",
    "ssl_cipher",
    "ssl_ciphers",
    "ssl_curve",
    "ssl_curves",
    "ssl_server_name",
    "ssl_session_reused",
    "ssl_alpn_protocol",
    "ssl_client_verify",
    "ssl_client_s_dn",
    "ssl_client_i_dn",
    "ssl_client_serial",
    "ssl_client_fingerprint",
    "ssl_client_v_start",
    "ssl_client_v_end",
    "ssl_client_v_remain",
    "ssl_client_cert",
    "ssl_client_raw_cert",
    "server_name",
];

/// Variables of the http area only.
const OF_HTTP: [&str; 7] = [
    "ssl_client_escaped_cert",
    "ssl_client_s_dn_legacy",
    "ssl_client_i_dn_legacy",
    "ssl_early_data",
    "http2",
    "https",
    "request_uri",
];

/// The configuration with the directives in their places.
fn text(puts: &[TlsPut], dirs: &Dirs, port: u16, identities: &Identities, binary: &Binary) -> String {
    let put = |place: TlsPlace| -> String {
        let area = if place.is_stream() { "STREAM" } else { "HTTP" };
        let lines: Vec<String> =
            puts.iter().filter(|put| put.place == place).map(|put| put.text.replace("AREA", area)).collect();
        lines.join("\n        ")
    };
    let named = |place: TlsPlace, name: &str, line: &'static str| {
        if puts.iter().any(|put| put.place == place && put.text.contains(name)) { "" } else { line }
    };
    let line = |variables: &[&str]| variables.iter().map(|name| format!("{name}=${name}\n")).collect::<String>();
    let stream_body = line(&VARIABLES);
    let http_body = stream_body.clone() + &line(&OF_HTTP);
    let body = |of: &str, text: &str| format!("'{MARK}{of}\n{text}{MARK}'");
    let user = if binary.nginx { "user root root;" } else { "" };
    let own = if binary.nginx { "" } else { "server_identity nginx;" };
    let certificate = "ssl_certificate FILES/server.crt; ssl_certificate_key FILES/server.key;";
    let [http, a, b, stream, stream_a, stream_b, preread, upstream] = [
        TlsPlace::Http,
        TlsPlace::A,
        TlsPlace::B,
        TlsPlace::Stream,
        TlsPlace::StreamA,
        TlsPlace::StreamB,
        TlsPlace::Preread,
        TlsPlace::Upstream,
    ]
    .map(put);
    let conf = format!(
        "daemon off;
worker_processes 1;
{user}
pid DIR/pid;
worker_shutdown_timeout 2s;
error_log DIR/error.log info;
events {{ }}
http {{
    {own}
    map $ssl_session_id $has_id {{ '' -; default id; }}
    log_format all '$remote_addr|$server_name|$request|$status|$body_bytes_sent|$ssl_protocol|$ssl_cipher|$ssl_server_name|'
                   '$ssl_client_verify|$ssl_client_s_dn|$ssl_session_reused|$has_id|$ssl_alpn_protocol|$ssl_curve';
    access_log DIR/access.log all;
    {http_certificate}
    {http}
    server {{
        listen 127.0.0.2:PORT ssl default_server;
        server_name a.test;
        {a}
        add_header X-Verify $ssl_client_verify always;
        location / {{ return 200 {of_a}; }}
        location /e {{ return 200 '{MARK}error $status $ssl_client_verify $request_uri{MARK}'; }}
    }}
    server {{
        listen 127.0.0.2:PORT ssl;
        server_name b.test;
        {b}
        location / {{ return 200 {of_b}; }}
        location /e {{ return 200 '{MARK}error b $status $ssl_client_verify $request_uri{MARK}'; }}
    }}
    server {{ listen 127.0.0.2:PORT ssl; server_name c.test; return 200 {of_c}; }}
}}
stream {{
    # Without `$ssl_cipher` and `$ssl_curve`, which end a worker of nginx after a failed handshake.
    log_format all '$remote_addr|$server_name|$status|$bytes_sent|$ssl_protocol|$ssl_server_name|$ssl_client_verify|'
                   '$ssl_session_reused|$ssl_alpn_protocol';
    access_log DIR/access.log all;
    {stream_certificate}
    {stream}
    server {{ listen 127.0.0.3:PORT ssl default_server; server_name a.test; {stream_a} return {of_stream_a}; }}
    server {{ listen 127.0.0.3:PORT ssl; server_name b.test; {stream_b} return {of_stream_b}; }}
    log_format passed '$remote_addr|$server_addr|$status|$ssl_preread_server_name|$ssl_preread_protocol|'
                      '$ssl_preread_alpn_protocols|$ssl_server_name';
    server {{
        listen 127.0.0.5:PORT;
        access_log DIR/access.log passed;
        proxy_bind $remote_addr;
        {ssl_preread}
        {preread}
        proxy_pass 127.0.0.2:PORT;
    }}
    server {{
        listen 127.0.0.6:PORT ssl;
        access_log DIR/access.log passed;
        proxy_bind $remote_addr;
        {proxy_ssl}
        {upstream}
        proxy_pass 127.0.0.7:PORT;
    }}
    log_format behind '$remote_addr|$server_name|$status|behind|$ssl_protocol|$ssl_server_name|$ssl_client_verify|$ssl_alpn_protocol';
    server {{
        listen 127.0.0.7:PORT ssl default_server;
        server_name a.test;
        ssl_certificate FILES/server.crt;
        ssl_certificate_key FILES/server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_ciphers HIGH:!aNULL:!MD5;
        ssl_alpn http/1.1;
        ssl_verify_client optional_no_ca;
        ssl_client_certificate FILES/root.crt;
        access_log DIR/access.log behind;
        return '{MARK}$server_name $ssl_protocol $ssl_server_name $ssl_client_verify $ssl_client_s_dn{MARK}';
    }}
    server {{
        listen 127.0.0.7:PORT ssl;
        server_name b.test;
        ssl_certificate FILES/serverrsa.crt;
        ssl_certificate_key FILES/serverrsa.key;
        access_log DIR/access.log behind;
        return '{MARK}$server_name $ssl_protocol $ssl_server_name{MARK}';
    }}
    # The last socket that listens: it tells that all do.
    server {{ listen 127.0.0.1:PORT; access_log off; error_log DIR/quiet.log crit; return ready; }}
}}
",
        http_certificate = named(TlsPlace::Http, "ssl_certificate ", certificate),
        stream_certificate = named(TlsPlace::Stream, "ssl_certificate ", certificate),
        ssl_preread = named(TlsPlace::Preread, "ssl_preread ", "ssl_preread on;"),
        proxy_ssl = named(TlsPlace::Upstream, "proxy_ssl ", "proxy_ssl on;"),
        of_a = body("a", &http_body),
        of_b = body("b", &http_body),
        of_c = body("c", &http_body),
        of_stream_a = body("a", &stream_body),
        of_stream_b = body("b", &stream_body),
    );
    conf.replace("PORT", &port.to_string())
        .replace("FILES", &identities.folder.display().to_string())
        .replace("DIR", &dirs.folder.display().to_string())
}

/// Moves the lines of each client out of a log.
fn by_client(lines: &mut Vec<String>, clients: &[Client], title: &str, answers: &mut [Vec<u8>]) {
    for (client, answer) in clients.iter().zip(answers) {
        let (start, inside) = (format!("127.1.0.{}|", client.from), format!("client: 127.1.0.{},", client.from));
        let connected = ["client", "proxy"].map(|who| format!("{who} 127.1.0.{}:", client.from));
        let (mut own, others): (Vec<String>, Vec<String>) = lines.drain(..).partition(|line| {
            line.starts_with(&start)
                || line.contains(&inside)
                || connected.iter().any(|words| line.contains(words.as_str()))
        });
        *lines = others;
        if client.door.is_passed_on() {
            own.sort();
        }
        for line in own {
            answer.extend_from_slice(format!("{title}: {line}\n").as_bytes());
        }
    }
}

/// The first lines that differ, with the client.
fn difference(clients: &[Client], theirs: &ServerRun, ours: &ServerRun) -> Option<String> {
    const BEFORE: usize = 4;
    const SHOWN: usize = 5;
    for (client, (theirs, ours)) in clients.iter().zip(theirs.answers.iter().zip(&ours.answers)) {
        if theirs == ours {
            continue;
        }
        let (theirs, ours) = (String::from_utf8_lossy(theirs), String::from_utf8_lossy(ours));
        let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
        let start = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
        let mut out = format!("  {client}\n");
        for line in theirs.get(start.saturating_sub(BEFORE)..start).unwrap_or_default() {
            out += &format!("            {line}\n");
        }
        for (name, lines) in [("nginx:    ", &theirs), ("tidegate: ", &ours)] {
            for line in lines.iter().skip(start).take(SHOWN) {
                out += &format!("  {name}{line:.500}\n");
            }
        }
        return Some(out);
    }
    None
}

fn one(
    plan: &Plan,
    identities: &Identities,
    puts: &[TlsPut],
    clients: &[Client],
) -> Result<(bool, usize, Option<String>), String> {
    let run = |binary: &Binary| -> Result<ServerRun, String> {
        let all = |port: u16| -> Result<Vec<Vec<u8>>, String> {
            Ok(clients.iter().map(|client| talk::run_client(client, port, &identities.folder)).collect())
        };
        let conf = |dirs: &Dirs, port: u16| text(puts, dirs, port, identities, binary);
        let mut run = ServerRun::with(binary, &conf, &all, None)?;
        run.errors = run.errors.iter().map(|line| without_ports(line)).filter_map(known::log_line).collect();
        run.access.iter_mut().for_each(known::without_failed_handshake);
        by_client(&mut run.access, clients, "access log", &mut run.answers);
        by_client(&mut run.errors, clients, "error log", &mut run.answers);
        Ok(run)
    };
    let (mut theirs, mut ours) = (run(&plan.nginx)?, run(&plan.ours)?);
    known::leave_out(puts, clients, &mut theirs, &mut ours);
    let refused = theirs.refused.is_some() && ours.refused.is_some();
    Ok((
        refused,
        theirs.answers.len(),
        difference(clients, &theirs, &ours).or_else(|| normal::first_difference(clients, &theirs, &ours)),
    ))
}

/// Removes directives that the difference of a client does not need.
fn reduce(
    plan: &Plan,
    identities: &Identities,
    puts: &mut Vec<TlsPut>,
    clients: &[Client],
    words: &mut String,
) -> Result<(), String> {
    let mut at = 0;
    while at < puts.len() && puts.len() > 1 {
        let mut fewer = puts.clone();
        fewer.remove(at);
        match one(plan, identities, &fewer, clients)?.2 {
            Some(still) => (*puts, *words) = (fewer, still),
            None => at += 1,
        }
    }
    Ok(())
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Differences, with the directives and the client that cause them; or the reason why the run failed.
pub fn compare_tls(plan: &Plan) -> Result<String, String> {
    let identities = identities::make_identities()?;
    let (pool, with) = (pool::tls_fragments(plan.only.as_deref()), pool::tls_fragments(plan.with.as_deref()));
    if pool.is_empty() || with.is_empty() {
        return Err("no directive holds that text".into());
    }
    let (mut refused, mut twice_wrong, mut answers, mut differences) = (0, 0, 0, Vec::new());
    for index in 0..plan.count {
        if differences.len() >= plan.differences_max {
            break;
        }
        let seed = plan.seed.wrapping_add(index);
        let mut dice = Dice::new(seed);
        let mut puts = draw(&mut dice, &pool, if plan.with.is_some() { &with } else { &pool });
        let clients: Vec<Client> = (1..=CLIENTS).map(|from| client::draw_client(&mut dice, from)).collect();
        let (both, asked, found) = one(plan, &identities, &puts, &clients)?;
        refused += u64::from(both);
        answers += asked;
        let Some(mut words) = found else { continue };
        // A client that differs by itself, with the directives that it needs.
        for client in &clients {
            let alone = std::slice::from_ref(client);
            if let Some(own) = one(plan, &identities, &puts, alone)?.2 {
                words = own;
                reduce(plan, &identities, &mut puts, alone, &mut words)?;
                break;
            }
        }
        if both && puts.len() > 1 {
            twice_wrong += 1;
            continue;
        }
        let lines: Vec<String> =
            puts.iter().map(|put| format!("    {:<8} {}", format!("{:?}", put.place), put.text)).collect();
        differences.push(format!("seed {seed}:\n{}\n{words}", lines.join("\n")));
    }
    let summary = format!(
        "TLS: {} configurations ({refused} refused by both, {twice_wrong} for another of two reasons), {answers} clients compared with {}",
        plan.count, plan.nginx.shown
    );
    crate::result(summary, &differences)
}
