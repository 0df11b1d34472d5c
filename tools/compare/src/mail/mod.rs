//! Compares the mail area: random directives in the places of a configuration with servers of the three protocols, random
//! dialogues of clients, an authentication server and mail servers that answer well and badly. The bytes that clients, the
//! authentication server and mail servers received, and the error log, are compared for each dialogue.
//!
//! Each client has an address of its own, by which lines of the log are found.

mod client;
mod pool;
mod servers;
mod talk;

use crate::server::{Binary, Dirs, ServerRun};
use crate::stream::without_ports;
use crate::{Dice, Plan, normal};
use base64::Engine as _;
use pool::{MailFragment, MailPlace};
use servers::{MailProtocol, MailServers};
use talk::{Dialogue, Door, Limits};

/// Dialogues of one configuration.
const DIALOGUES: u8 = 40;

/// A directive in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MailPut {
    text: &'static str,
    place: MailPlace,
}

/// Directives that make up one configuration; a place has a directive once.
fn draw(dice: &mut Dice, pool: &[MailFragment], first: &[MailFragment]) -> Vec<MailPut> {
    const MOST: usize = 7;
    let count = 1 + dice.below(MOST);
    let mut puts: Vec<MailPut> = Vec::new();
    for index in 0..count {
        let pool = if index == 0 { first } else { pool };
        let Some(fragment) = pool.get(dice.below(pool.len())) else { continue };
        let Some(place) = fragment.places.get(dice.below(fragment.places.len())) else { continue };
        let names = |text: &str| {
            text.split(';').filter_map(|d| d.split_whitespace().next().map(String::from)).collect::<Vec<_>>()
        };
        let own = names(fragment.text);
        if !puts.iter().any(|put| put.place == *place && names(put.text).iter().any(|name| own.contains(name))) {
            puts.push(MailPut { text: fragment.text, place: *place });
        }
    }
    puts
}

/// The configuration with the directives in their places.
fn text(puts: &[MailPut], dirs: &Dirs, port: u16, servers: &MailServers, binary: &Binary) -> String {
    let put = |place: MailPlace| -> String {
        let lines: Vec<&str> = puts.iter().filter(|put| put.place == place).map(|put| put.text).collect();
        lines.join("\n        ")
    };
    let user = if binary.nginx { "user root root;" } else { "" };
    let mut blocks = String::new();
    for protocol in MailProtocol::ALL {
        let place = match protocol {
            MailProtocol::Imap => MailPlace::Imap,
            MailProtocol::Pop3 => MailPlace::Pop3,
            MailProtocol::Smtp => MailPlace::Smtp,
        };
        for (door, flag) in [(Door::Clear, ""), (Door::Tls, " ssl"), (Door::Header, " proxy_protocol")] {
            blocks += &format!(
                "    server {{
        listen 127.0.0.{}:PORT{flag};
        protocol {};
        {}
    }}
",
                talk::server_host(protocol, door),
                protocol.name(),
                put(place)
            );
        }
    }
    let named = |name: &str, line: &'static str| {
        if puts.iter().any(|put| put.place == MailPlace::Mail && put.text.starts_with(name)) { "" } else { line }
    };
    let (auth, name) =
        (named("auth_http ", "auth_http 127.0.0.1:AUTH/auth;"), named("server_name", "server_name mx.example;"));
    let certificate = named("ssl_certificate ", "ssl_certificate DIR/one.crt;");
    let conf = format!(
        "daemon off;
worker_processes 1;
{user}
pid DIR/pid;
worker_shutdown_timeout 2s;
error_log DIR/error.log info;
events {{ }}
mail {{
    {auth}
    {name}
    {certificate}
    ssl_certificate_key DIR/one.key;
    {}
{blocks}
    # The last socket that listens: it tells that all do.
    server {{ listen 127.0.0.1:PORT; protocol pop3; pop3_auth plain; error_log DIR/quiet.log crit; }}
}}
",
        put(MailPlace::Mail)
    );
    conf.replace("PORT", &port.to_string())
        .replace("AUTH", &servers.auth.to_string())
        .replace("DIR", &dirs.folder.display().to_string())
}

/// Replaces salts, which are chance: `<1.2@name>`.
fn without_salts(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|c| *c == b'<') {
        let (before, behind) = rest.split_at(at + 1);
        out.extend_from_slice(before);
        let number = behind.iter().take_while(|c| c.is_ascii_digit() || **c == b'.').count();
        let is_salt = number > 2 && behind.get(number) == Some(&b'@');
        if is_salt {
            out.extend_from_slice(b"SALT");
        }
        rest = behind.get(if is_salt { number } else { 0 }..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// Replaces challenges of CRAM-MD5 by their text.
fn without_challenges(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|c| *c == b'\n') {
        let words = line.trim_ascii_end();
        let challenge = words.strip_prefix(b"+ ").or_else(|| words.strip_prefix(b"334 "));
        let decoded = challenge.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
        match decoded.filter(|text| text.starts_with(b"<")) {
            Some(text) => {
                out.extend_from_slice(b"[challenge]");
                out.extend_from_slice(&without_salts(&text));
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    without_salts(&out)
}

/// Writes a PROXY protocol header in words: without ports, checksum, and the algorithms of the server's certificate.
fn without_header_ports(bytes: &[u8]) -> Vec<u8> {
    let length = servers::header_bytes(bytes).unwrap_or(0);
    let Some((header, rest)) = bytes.split_at_checked(length).filter(|_| length > 0) else { return bytes.to_vec() };
    if header.starts_with(b"PROXY ") {
        let words: Vec<String> = String::from_utf8_lossy(header).split(' ').take(4).map(String::from).collect();
        return [words.join(" ").as_bytes(), b" N N\r\n", rest].concat();
    }
    const COMMAND: usize = 12;
    const ADDRESSES: usize = 16;
    let family = header.get(COMMAND + 1).copied().unwrap_or_default();
    let addresses = match family {
        0x11 => 8,
        0x21 => 32,
        _ => 0,
    };
    let ports = if addresses > 0 { 4 } else { 0 };
    let mut out = format!(
        "PROXY2 {} {family:x} {}",
        header.get(COMMAND).copied().unwrap_or_default(),
        header.get(ADDRESSES..ADDRESSES + addresses).unwrap_or_default().escape_ascii()
    );
    fields(header.get(ADDRESSES + addresses + ports..).unwrap_or_default(), &mut out);
    [out.as_bytes(), b"\n", rest].concat()
}

fn fields(mut rest: &[u8], out: &mut String) {
    /// Checksum, and algorithms of the server's certificate.
    const LEFT_OUT: [u8; 3] = [0x03, 0x24, 0x25];
    const SSL: u8 = 0x20;
    const SSL_FIXED: usize = 5;
    while let [kind, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let value = behind.get(..length).unwrap_or(behind);
        rest = behind.get(length..).unwrap_or_default();
        if LEFT_OUT.contains(kind) {
            continue;
        }
        let plain = if *kind == SSL { value.get(..SSL_FIXED).unwrap_or_default() } else { value };
        *out += &format!(" {kind:x}={}", plain.escape_ascii());
        if *kind == SSL {
            fields(value.get(SSL_FIXED..).unwrap_or_default(), out);
        }
    }
}

/// Bytes in lines, for people.
fn shown(bytes: &[u8]) -> String {
    let mut out = String::new();
    for line in bytes.split_inclusive(|c| *c == b'\n') {
        out += &format!("    {}\n", line.escape_ascii());
    }
    out
}

/// Everything that belongs to one dialogue.
fn transcript(came: &[u8], servers: &MailServers) -> Vec<u8> {
    let mut out = format!("client received\n{}", shown(&without_challenges(came)));
    let (auth, mail): (Vec<_>, Vec<_>) = servers.ledger.take().into_iter().partition(|record| record.is_auth);
    for record in auth {
        out += &format!("authentication server received\n{}", shown(&without_salts(&record.bytes)));
    }
    for record in mail {
        out += &format!("mail server received\n{}", shown(&without_header_ports(&record.bytes)));
    }
    out.into_bytes()
}

/// Messages that quote everything that a peer sent: nginx cuts the line, Tidegate the quote.
const LONG: [&str; 3] =
    ["client sent too long command", "upstream sent too long response line", "upstream sent invalid response"];
/// Bytes of such a message that are compared.
const LONG_BYTES: usize = 100;
/// Messages of Tidegate where nginx logs nothing.
const ADDED: [&str; 2] = ["prematurely closed connection", "sent too large response"];
/// Starts of lines about details that depend on the TLS library.
const LIBRARY: [&str; 1] = ["[info] SSL_shutdown() failed"];

/// Returns the lines of each client. A line without an address, since its end is cut off, belongs to the client of the line before.
/// `quiet`: the configuration keeps lines out of the log that tell the client.
fn by_client(lines: &mut Vec<String>, dialogues: &[Dialogue], quiet: bool) -> Vec<String> {
    let mut logs = vec![String::new(); dialogues.len()];
    let mut last = None;
    lines.retain(|line| {
        if LIBRARY.iter().any(|start| line.starts_with(start)) || ADDED.iter().any(|words| line.contains(words)) {
            return false;
        }
        let is_own = |dialogue: &&Dialogue| {
            let from = dialogue.route.from;
            [format!("127.1.0.{from}"), format!("127.2.0.{from}"), format!("2001:db8::{from:x}")].iter().any(|a| {
                let ends = [
                    format!("client: {a},"),
                    format!("client: {a} "),
                    format!("client {a}:"),
                    format!("client [{a}]:"),
                ];
                ends.iter().any(|end| line.contains(end.as_str()))
            })
        };
        let found = dialogues.iter().position(|dialogue| is_own(&dialogue));
        let line = &without_calls(line);
        let is_long = LONG.iter().any(|words| line.contains(words));
        if quiet && is_long {
            return false;
        }
        let Some(log) = found.or(last.filter(|_| is_long)).and_then(|index| logs.get_mut(index)) else { return true };
        last = found.or(last);
        let shown = if is_long { line.get(..line.floor_char_boundary(LONG_BYTES)).unwrap_or(line) } else { line };
        // Tidegate escapes line breaks.
        let shown = shown.split_once("\\x0D").or(shown.split_once("\\x0A")).map_or(shown, |(first, _)| first);
        *log += &format!("    {shown}\n");
        false
    });
    logs
}

/// Writes a failure to connect alike: nginx names the system call of its event handler, or another level.
fn without_calls(line: &str) -> String {
    const STARTS: [&str; 4] = [
        "[error] recv() failed (111",
        "[error] connect() failed (",
        "[crit] connect() to unix:",
        "[error] send() failed (111",
    ];
    match line.split_once(", client: ").filter(|_| STARTS.iter().any(|start| line.starts_with(start))) {
        Some((_, details)) => format!("[error] no connection, client: {details}"),
        None => line.to_string(),
    }
}

/// The lines that differ, with the dialogue.
fn difference(dialogues: &[Dialogue], theirs: &ServerRun, ours: &ServerRun) -> Option<String> {
    const BEFORE: usize = 3;
    for (dialogue, (theirs, ours)) in dialogues.iter().zip(theirs.answers.iter().zip(&ours.answers)) {
        if theirs == ours {
            continue;
        }
        let (theirs, ours) = (String::from_utf8_lossy(theirs), String::from_utf8_lossy(ours));
        let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
        let start = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
        let most = theirs.len().min(ours.len()) - start;
        let end = theirs.iter().rev().zip(ours.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
        let mut out = format!("  {dialogue}\n");
        for line in theirs.get(start.saturating_sub(BEFORE)..start).unwrap_or_default() {
            out += &format!("           {line}\n");
        }
        for (name, lines) in [("nginx:   ", &theirs), ("tidegate:", &ours)] {
            for line in lines.get(start..lines.len() - end).unwrap_or_default() {
                out += &format!("  {name}{line}\n");
            }
        }
        return Some(out);
    }
    None
}

/// Returns the limits of bytes sent at once, by the buffers of the configuration.
fn limits(puts: &[MailPut]) -> Limits {
    let has = |text: &str| puts.iter().any(|put| put.text == text);
    let external = MailProtocol::ALL.map(|protocol| {
        let name = format!("{}_auth ", protocol.name());
        let mut own = puts.iter().filter(|put| put.text.starts_with(&name)).peekable();
        own.peek().is_some() && own.all(|put| put.text.contains("external"))
    });
    Limits {
        imap: if has("imap_client_buffer 64;") { 60 } else { 900 },
        smtp: if has("smtp_client_buffer 64;") { 60 } else { 900 },
        external,
        mail: has("smtp_auth none;") || has("smtp_auth none plain;"),
    }
}

fn one(
    plan: &Plan,
    servers: &MailServers,
    puts: &[MailPut],
    dialogues: &[Dialogue],
) -> Result<(bool, usize, Option<String>), String> {
    let quiet = puts.iter().any(|put| put.text.starts_with("error_log"));
    let run = |binary: &Binary| -> Result<ServerRun, String> {
        servers.ledger.forget();
        let all = |port: u16| -> Result<Vec<Vec<u8>>, String> {
            let one = |dialogue: &Dialogue| {
                let came = client::run_steps(dialogue.route, port, &dialogue.steps);
                let came = came.unwrap_or_else(|e| format!("<{:?}>", e.kind()).into());
                transcript(&came, servers)
            };
            Ok(dialogues.iter().map(one).collect())
        };
        let conf = |dirs: &Dirs, port: u16| text(puts, dirs, port, servers, binary);
        let mut run = ServerRun::with(binary, &conf, &all, None)?;
        run.errors.iter_mut().for_each(|line| *line = without_ports(line));
        for (log, answer) in by_client(&mut run.errors, dialogues, quiet).iter().zip(&mut run.answers) {
            answer.extend_from_slice(format!("log\n{log}").as_bytes());
        }
        run.errors.sort();
        Ok(run)
    };
    let (theirs, ours) = (run(&plan.nginx)?, run(&plan.ours)?);
    let refused = theirs.refused.is_some() && ours.refused.is_some();
    Ok((
        refused,
        theirs.answers.len(),
        difference(dialogues, &theirs, &ours).or_else(|| normal::first_difference(dialogues, &theirs, &ours)),
    ))
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Differences, with the directives and the dialogue that cause them; or the reason why the run failed.
pub fn compare_mail(plan: &Plan) -> Result<String, String> {
    let servers = MailServers::start().map_err(|e| format!("the servers behind: {e}"))?;
    let (pool, with) = (pool::mail_fragments(plan.only.as_deref()), pool::mail_fragments(plan.with.as_deref()));
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
        let limits = limits(&puts);
        let dialogues: Vec<Dialogue> =
            (1..=DIALOGUES).map(|from| talk::draw_dialogue(&mut dice, from, limits)).collect();
        let (both, asked, found) = one(plan, &servers, &puts, &dialogues)?;
        refused += u64::from(both);
        answers += asked;
        if found.is_none() {
            continue;
        }
        // Each dialogue that differs by itself, with the directives that it needs.
        let mut alone = 0;
        for dialogue in &dialogues {
            let dialogue = std::slice::from_ref(dialogue);
            let Some(mut words) = one(plan, &servers, &puts, dialogue)?.2 else { continue };
            alone += 1;
            let mut at = 0;
            while at < puts.len() && puts.len() > 1 {
                let mut fewer = puts.clone();
                let put = fewer.remove(at);
                // The dialogue was made for these.
                if put.text.contains("_auth ") || put.text.contains("_buffer 64") {
                    at += 1;
                    continue;
                }
                match one(plan, &servers, &fewer, dialogue)?.2 {
                    Some(still) => (puts, words) = (fewer, still),
                    None => at += 1,
                }
            }
            let lines: Vec<String> =
                puts.iter().map(|put| format!("    {:<10} {}", format!("{:?}", put.place), put.text)).collect();
            if both && puts.len() > 1 {
                twice_wrong += 1;
            } else {
                differences.push(format!("seed {seed}:\n{}\n{words}", lines.join("\n")));
            }
            break;
        }
        if alone == 0
            && let Some(words) = one(plan, &servers, &puts, &dialogues)?.2
        {
            differences.push(format!("seed {seed}, all dialogues:\n{words}"));
        }
    }
    let summary = format!(
        "mail: {} configurations ({refused} refused by both, {twice_wrong} for another of two reasons), {answers} dialogues compared with {}",
        plan.count, plan.nginx.shown
    );
    crate::result(summary, &differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_and_challenges_are_chance() {
        assert_eq!(without_salts(b"+OK <12.34@h> <a@h> <@"), b"+OK <SALT@h> <a@h> <@");
        let challenge = |salt: &str| {
            let text = base64::engine::general_purpose::STANDARD.encode(salt);
            without_challenges(format!("334 {text}\r\n+ VXNlcm5hbWU6\r\n").as_bytes())
        };
        assert_eq!(challenge("<1.2@h>"), challenge("<33.44@h>"));
        assert_eq!(challenge("<1.2@h>"), b"[challenge]<SALT@h>\n+ VXNlcm5hbWU6\r\n");
        assert_ne!(challenge("<1.2@h>"), challenge("<1.2@other>"));
    }

    #[test]
    fn headers_are_compared_without_ports() {
        assert_eq!(without_header_ports(b"PROXY TCP4 a b 1 2\r\nEHLO"), b"PROXY TCP4 a b N N\r\nEHLO");
        assert_eq!(without_header_ports(b"EHLO\r\n"), b"EHLO\r\n");
        let header = |port: u8, name: &[u8], sum: u8| {
            let fields: &[&[u8]] =
                &[&[2, 0, 1], name, &[0x20, 0, 9, 1, 0, 0, 0, 1, 0x24, 0, 1, b'x', 3, 0, 4, sum, 0, 0, 0]];
            let fields = fields.concat();
            let length = 12 + u8::try_from(fields.len()).expect("short");
            let fixed = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", &[length][..], b"aaaabbbb", &[0, port, 0, port]].concat();
            without_header_ports(&[fixed, fields, b"EHLO".to_vec()].concat())
        };
        assert_eq!(header(1, b"a", 5), header(2, b"a", 6));
        assert_eq!(header(1, b"a", 5), b"PROXY2 33 11 aaaabbbb 2=a 20=\\x01\\x00\\x00\\x00\\x01\nEHLO");
        assert_ne!(header(1, b"a", 5), header(1, b"b", 5));
    }

    #[test]
    fn a_cut_line_belongs_to_the_client_before() {
        let mut dice = Dice::new(1);
        let limits = limits(&[]);
        let dialogues: Vec<Dialogue> = (1..=11).map(|from| talk::draw_dialogue(&mut dice, from, limits)).collect();
        let mut lines: Vec<String> = [
            "[info] client 127.1.0.11:N connected",
            "[error] upstream sent too long response line: \"x",
            "[alert] other",
        ]
        .map(String::from)
        .into();
        let logs = by_client(&mut lines, &dialogues, false);
        assert_eq!((logs[10].lines().count(), logs[0].as_str(), lines.len()), (2, "", 1));
    }
}
