//! Random dialogues of mail clients.

use super::client::{ClientRoute, ClientStep};
use super::servers::{ANSWERS, MailProtocol, server_manners};
use crate::Dice;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How a server's connections begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Clear,
    Tls,
    Header,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialogue {
    pub protocol: MailProtocol,
    pub door: Door,
    pub route: ClientRoute,
    pub steps: Vec<ClientStep>,
}

impl std::fmt::Display for Dialogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} from {}", self.protocol.name(), self.door, self.route.from)?;
        if self.route.with_certificate {
            write!(f, " with a certificate")?;
        }
        for step in &self.steps {
            match step {
                ClientStep::Send(bytes) if bytes.len() > SHOWN_MAX => write!(
                    f,
                    " \"{}...\" ({} bytes)",
                    bytes.get(..SHOWN_MAX).unwrap_or_default().escape_ascii(),
                    bytes.len()
                )?,
                ClientStep::Send(bytes) => write!(f, " \"{}\"", bytes.escape_ascii())?,
                other => write!(f, " {other:?}")?,
            }
        }
        Ok(())
    }
}

const SHOWN_MAX: usize = 300;

/// Returns the last number of a server's address.
pub fn server_host(protocol: MailProtocol, door: Door) -> u8 {
    let first = match protocol {
        MailProtocol::Imap => 2,
        MailProtocol::Pop3 => 5,
        MailProtocol::Smtp => 8,
    };
    first
        + match door {
            Door::Clear => 0,
            Door::Tls => 1,
            Door::Header => 2,
        }
}

/// Bytes that a client sends at once before their replies. nginx takes more than its buffer's rest for a command that is too
/// long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub imap: usize,
    pub smtp: usize,
    /// Tidegate refuses EXTERNAL with an initial response unless it is listed.
    pub external: [bool; 3],
    /// SMTP clients need no login. Otherwise nginx logs the whole buffer with MAIL, without line breaks, and loses the commands
    /// behind it.
    pub mail: bool,
}

impl Limits {
    fn of(self, protocol: MailProtocol) -> usize {
        const POP3: usize = 120;
        match protocol {
            MailProtocol::Imap => self.imap,
            MailProtocol::Pop3 => POP3,
            MailProtocol::Smtp => self.smtp,
        }
    }
}

const IMAP: &[&str] = &[
    "t NOOP",
    "t noop",
    "t CAPABILITY",
    "t  CAPABILITY  ",
    "t SELECT inbox",
    "t LOGIN",
    "t LOGIN a",
    "t LOGIN a b c",
    "t LOGIN \"\" b",
    "t LOGIN a \"\"",
    "t LOGIN a\"b c",
    "t LOGIN \"a\"b",
    "t LOGIN \"good\" \"a\\\\\\\"b\"",
    "t LOGIN {2}x",
    "t LOGIN {a}",
    "t LOGIN {2+",
    "t LOGIN {99999999999999999999}",
    "t AUTHENTICATE",
    "t AUTHENTICATE GSSAPI",
    "t AUTHENTICATE PLAIN *",
    "t AUTHENTICATE PLAIN a b",
    "t AUTHENTICATE LOGIN !",
    "t AUTHENTICATE CRAM-MD5 x",
    "t NOOP a b c",
    "t NOOP a b c d",
    "t CAPABILITY x",
    "t",
    "",
    "t ",
    "t NOOP\rx",
    "t+ NOOP",
    "0123456789012345678901234567890 NOOP",
    "01234567890123456789012345678901 NOOP",
    "012345678901234567890123456789012 NOOP",
    "t ABCDEFGHIJKLMNOP",
    "* NOOP",
    "t APPEND {3+}",
    "t LOGIN \\a b",
    "t LOGIN \"a\\b\" c\\d",
];

const POP3: &[&str] = &[
    "NOOP",
    "noop",
    "CAPA",
    "capa x",
    "NOOP x y",
    "RETR 1",
    "USER",
    "PASS x",
    "USER a\r\nUSER b",
    "USER a\r\nPASS",
    "USER a\r\nNOOP\r\nCAPA",
    "USER a\r\nAUTH",
    "USER a\r\nQUITX",
    "USER  a ",
    "APOP a",
    "APOP a b c",
    "APOP",
    "AUTH",
    "auth  ",
    "AUTH GSSAPI",
    "AUTH PLAIN *",
    "AUTH PLAIN a b",
    "AUTH LOGIN !",
    "AUTH CRAM-MD5 x",
    "AUTH a b c d",
    "",
    " ",
    " NOOP",
    "NOOP\rx",
    "STATS",
    "STL",
    "NOOP 1 2 3",
    "NOOP 1 2 3 4",
    "TOP 1 1",
    "USER a\rb",
];

const SMTP: &[&str] = &[
    "NOOP",
    "noop x",
    "HELO a",
    "EHLO a",
    "ehlo  b ",
    "HELO",
    "EHLO",
    "HELO a b",
    "RSET",
    "RSET x",
    "VRFY a",
    "EXPN a",
    "HELP",
    "DATA",
    "MAIL",
    "MAIL FROM:<a>",
    "mail from:<a> SIZE=1 ",
    "MAIL FROM:<good@x>",
    "RCPT",
    "RCPT TO:<b>",
    "RCPT TO:<b> X",
    "AUTH",
    "AUTH ",
    "AUTH GSSAPI",
    "AUTH PLAIN *",
    "AUTH PLAIN a b",
    "AUTH LOGIN !",
    "AUTH CRAM-MD5 x",
    "AUTH PLAIN =",
    "XCLIENT ADDR=1.2.3.4",
    "",
    " ",
    " NOOP",
    "NOOP\rx",
    "NOOP 1 2 3 4 5 6 7 8 9 10 11",
    "NOOP 1 2 3 4 5 6 7 8 9 10 11 12",
    "EHLO a\r\nMAIL FROM:<a>\r\nRSET\r\nRCPT TO:<b>",
    "STARTTL",
    "MAIL FROM:<a>\r\nMAIL FROM:<b>",
];

/// Clients' answers in an AUTH exchange instead of the expected ones.
const WRONG: &[&str] = &["*", "", "a b", "a b c d", "AGE=", "YQ==", "====", "AGEAYg==x", "!"];

struct TalkWriter<'a> {
    dice: &'a mut Dice,
    protocol: MailProtocol,
    tag: usize,
    /// One per line, with its reply.
    lines: Vec<Vec<u8>>,
    external: bool,
    slow: bool,
}

impl TalkWriter<'_> {
    fn line(&mut self, text: &str) {
        let end: &[u8] = if self.dice.below(8) == 0 { b"\n" } else { b"\r\n" };
        self.lines.push([text.as_bytes(), end].concat());
    }
    fn tagged(&mut self, text: &str) {
        self.tag += 1;
        let line = match self.protocol {
            MailProtocol::Imap => format!("t{} {text}", self.tag),
            _ => text.to_string(),
        };
        self.line(&line);
    }
    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from.get(self.dice.below(from.len())).copied().unwrap_or_default()
    }
    fn command(&mut self) {
        let text = match self.protocol {
            MailProtocol::Imap => self.pick(IMAP),
            MailProtocol::Pop3 => self.pick(POP3),
            MailProtocol::Smtp => self.pick(SMTP),
        };
        for text in text.split_inclusive("\r\n") {
            self.line(text.trim_end_matches("\r\n"));
        }
    }
    /// A name that selects a server's behaviour.
    fn user(&mut self) -> String {
        let names: Vec<&str> = server_manners().collect();
        match self.dice.below(8) {
            0..3 => format!("at-{}", self.pick(&names)),
            3..5 => self.pick(&["good", "pass", "mapped", "good@a", "good b", "unknown"]).to_string(),
            _ => {
                let all: Vec<&str> = ANSWERS.iter().map(|(name, _)| *name).collect();
                let name = self.pick(&all);
                // They take a second.
                let name = if matches!(name, "slow" | "again") && self.dice.below(3) > 0 { "good" } else { name };
                // nginx takes an empty status for a refusal, except in SMTP.
                let is_empty = matches!(name, "nocolon" | "deniedempty");
                let name = if is_empty && self.protocol == MailProtocol::Smtp { "denied" } else { name };
                self.slow |= matches!(name, "slow" | "again");
                name.to_string()
            }
        }
    }
    fn log_in(&mut self) {
        let user = self.user();
        let password = self.pick(&["secret", "p w", "p%\"\\x", "p"]);
        let verb = if self.protocol == MailProtocol::Imap { "AUTHENTICATE" } else { "AUTH" };
        let plain = STANDARD.encode(format!("{}\0{user}\0{password}", self.pick(&["", "", "other"])));
        match self.dice.below(14) {
            0 => self.tagged(&format!("{verb} PLAIN {plain}")),
            1 => {
                self.tagged(&format!("{verb} PLAIN"));
                self.line(&plain);
            }
            2 => {
                self.tagged(&format!("{verb} LOGIN"));
                self.line(&STANDARD.encode(&user));
                self.line(&STANDARD.encode(password));
            }
            3 => {
                self.tagged(&format!("{verb} login {}", STANDARD.encode(&user)));
                self.line(&STANDARD.encode(password));
            }
            4 => {
                self.tagged(&format!("{verb} CRAM-MD5"));
                self.line(&STANDARD.encode(format!("{user} 0123456789abcdef0123456789abcdef")));
            }
            5 => {
                self.tagged(&format!("{verb} EXTERNAL"));
                self.line(&STANDARD.encode(&user));
            }
            6 if self.external => self.tagged(&format!("{verb} EXTERNAL {}", STANDARD.encode(&user))),
            7 => {
                let method = self.pick(&["PLAIN", "LOGIN", "CRAM-MD5", "EXTERNAL"]);
                self.tagged(&format!("{verb} {method}"));
                let wrong = self.pick(WRONG);
                let wrong = if wrong.starts_with("AGE") && method != "PLAIN" { "!" } else { wrong };
                // nginx answers an invalid name without a tag.
                let untagged = self.protocol == MailProtocol::Imap && method == "LOGIN";
                self.line(if untagged { "YQ==" } else { wrong });
                // nginx reads literals in the password's line.
                if method == "LOGIN" && (untagged || matches!(wrong, "YQ==" | "====" | "")) {
                    self.line("!");
                }
            }
            8 => {
                self.tagged(&format!("{verb} LOGIN"));
                self.line(&STANDARD.encode(&user));
                let wrong = self.pick(WRONG);
                // Tidegate refuses NUL in names and passwords.
                self.line(if wrong.starts_with("AGE") { "!" } else { wrong });
            }
            _ => self.own_login(&user, password),
        }
    }
    fn own_login(&mut self, user: &str, password: &str) {
        match self.protocol {
            MailProtocol::Imap => {
                let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
                match self.dice.below(5) {
                    0 if !user.contains(' ') && !password.contains([' ', '"']) => {
                        self.tagged(&format!("LOGIN {user} {password}"));
                    }
                    1 => {
                        self.tagged(&format!("LOGIN {{{}}}", user.len()));
                        self.line(&format!("{user} {{{}}}", password.len()));
                        self.line(password);
                    }
                    2 => self.tagged(&format!(
                        "LOGIN {{{}+}}\r\n{user} {{{}+}}\r\n{password}",
                        user.len(),
                        password.len()
                    )),
                    3 => self.tagged(&format!("LOGIN {{{}+}}\r\n{user} \"{quoted}\"", user.len())),
                    _ => self.tagged(&format!("LOGIN \"{user}\" \"{quoted}\"")),
                }
            }
            MailProtocol::Pop3 if self.dice.below(4) == 0 => {
                self.line(&format!("APOP {user} 0123456789abcdef0123456789abcdef"));
            }
            MailProtocol::Pop3 => {
                self.line(&format!("USER {user}"));
                self.line(&format!("PASS {password}"));
            }
            MailProtocol::Smtp => {
                if self.dice.below(4) > 0 {
                    let hello = self.pick(&["EHLO client.example", "HELO client.example"]);
                    self.line(hello);
                }
                self.line(&format!("MAIL FROM:<{user}@x>"));
                self.line("RCPT TO:<somebody@x>");
            }
        }
    }
    fn quit(&mut self) {
        match self.protocol {
            MailProtocol::Imap => self.tagged("LOGOUT"),
            _ => self.line("QUIT"),
        }
    }
    fn long(&mut self, limits: Limits) {
        let most = limits.of(self.protocol);
        let length = match self.dice.below(4) {
            0 => most / 2,
            1 => most + 20,
            2 => 4_200,
            _ => 6_000,
        };
        let start = match self.protocol {
            MailProtocol::Imap => "t LOGIN ",
            MailProtocol::Pop3 => "USER ",
            MailProtocol::Smtp => "EHLO ",
        };
        let line = format!("{start}{}", "l".repeat(length));
        self.line(&line);
    }
}

fn header(dice: &mut Dice, from: u8) -> Vec<u8> {
    match dice.below(8) {
        0 => b"PROXY UNKNOWN and more\r\n".to_vec(),
        1 => format!("PROXY TCP6 2001:db8::{from:x} ::1 1111 2222\r\n").into_bytes(),
        2 => b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        3 => {
            let fixed: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\x02\0";
            [fixed, &[from], b"\x0a\x04\x05\x06\x04\x57\x08\xae"].concat()
        }
        4 => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(),
        _ => format!("PROXY TCP4 127.2.0.{from} 10.4.5.6 1111 2222\r\n").into_bytes(),
    }
}

/// Draws the dialogue of the client with this last number of its address.
pub fn draw_dialogue(dice: &mut Dice, from: u8, limits: Limits) -> Dialogue {
    let protocol = MailProtocol::ALL.get(dice.below(3)).copied().unwrap_or(MailProtocol::Imap);
    let door = match dice.below(8) {
        0 => Door::Tls,
        1 => Door::Header,
        _ => Door::Clear,
    };
    let external = MailProtocol::ALL.iter().zip(limits.external).any(|(one, external)| *one == protocol && external);
    let with_certificate = dice.below(2) == 0;
    let mut steps = Vec::new();
    match door {
        Door::Tls => steps.push(ClientStep::Tls),
        Door::Header => steps.push(ClientStep::Send(header(dice, from))),
        Door::Clear => {}
    }
    let secured = door == Door::Clear && dice.below(4) == 0;
    // nginx's message about MAIL quotes earlier commands, too.
    let quoted = protocol == MailProtocol::Smtp && !limits.mail;
    if dice.below(8) > 0 || door != Door::Clear || secured || quoted {
        steps.push(ClientStep::Wait);
    }
    let mut writer = TalkWriter { dice, protocol, tag: 0, lines: Vec::new(), external, slow: false };
    for _ in 0..writer.dice.below(3) {
        writer.command();
    }
    if secured {
        let before = std::mem::take(&mut writer.lines);
        steps.extend(before.into_iter().flat_map(|line| [ClientStep::Send(line), ClientStep::Wait]));
        let verb = if protocol == MailProtocol::Pop3 { "STLS" } else { "STARTTLS" };
        writer.tagged(verb);
        // Plain text behind the command may be injected.
        if writer.dice.below(3) == 0 {
            writer.command();
        }
        if protocol == MailProtocol::Smtp && !limits.mail && writer.lines.iter().any(|line| is_mail(line)) {
            writer.lines.truncate(1);
        }
        steps.push(ClientStep::Send(std::mem::take(&mut writer.lines).concat()));
        steps.push(ClientStep::Wait);
        steps.push(ClientStep::Tls);
        for _ in 0..writer.dice.below(2) {
            writer.command();
        }
    }
    if writer.dice.below(12) == 0 {
        writer.long(limits);
    }
    if writer.dice.below(5) > 0 {
        writer.log_in();
    }
    for _ in 0..writer.dice.below(3) {
        writer.command();
    }
    if writer.dice.below(8) == 0 {
        writer.log_in();
    }
    if writer.dice.below(6) > 0 {
        writer.quit();
    }
    let (lines, slow) = (std::mem::take(&mut writer.lines), writer.slow);
    send(&mut steps, dice, lines, limits, protocol, slow);
    Dialogue { protocol, door, route: ClientRoute { host: server_host(protocol, door), from, with_certificate }, steps }
}

fn is_mail(line: &[u8]) -> bool {
    line.get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"MAIL"))
}

/// Sends lines one by one, several at once, or in pieces.
fn send(
    steps: &mut Vec<ClientStep>,
    dice: &mut Dice,
    lines: Vec<Vec<u8>>,
    limits: Limits,
    protocol: MailProtocol,
    slow: bool,
) {
    let wait = if slow { ClientStep::Long } else { ClientStep::Wait };
    let at_once = protocol != MailProtocol::Smtp || limits.mail || !lines.iter().any(|line| is_mail(line));
    let total: usize = lines.iter().map(Vec::len).sum();
    match dice.below(4) {
        0 if total <= limits.of(protocol) && at_once && !slow => steps.extend([ClientStep::Send(lines.concat()), wait]),
        1 => {
            for line in lines {
                let cut = dice.below(line.len());
                let (head, tail) = line.split_at(cut);
                steps.extend([
                    ClientStep::Send(head.to_vec()),
                    ClientStep::Pause,
                    ClientStep::Send(tail.to_vec()),
                    wait.clone(),
                ]);
            }
        }
        _ => steps.extend(lines.into_iter().flat_map(|line| [ClientStep::Send(line), wait.clone()])),
    }
}
