//! The servers behind: one that authenticates, and IMAP, POP3 and SMTP servers, good ones and bad ones. Names and ports select
//! their behaviour, so that both runs meet the same one.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between two parts of a message, so that the server reads them apart. On a busy machine they may arrive together in one
/// of both runs: such a difference is chance, and the comparison is run by hand, not in CI.
const PAUSE: Duration = Duration::from_millis(4);
/// Bytes of a response that no buffer holds.
const LONG_BYTES: usize = 9_000;

/// Received bytes of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailRecord {
    pub is_auth: bool,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct ServersState {
    records: Vec<MailRecord>,
    open: usize,
    /// Requests by client and name: some names get another answer the second time.
    asked: HashMap<Vec<u8>, usize>,
}

/// Log of all connections. They are counted from their accept on.
#[derive(Clone, Default)]
pub struct Ledger(Arc<(Mutex<ServersState>, Condvar)>);

impl Ledger {
    fn with<T>(&self, act: impl FnOnce(&mut ServersState) -> T) -> T {
        let mut shared = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(&mut shared)
    }
    fn open(&self) {
        self.with(|shared| shared.open += 1);
    }
    fn close(&self, record: MailRecord) {
        self.with(|shared| {
            shared.open -= 1;
            shared.records.push(record);
        });
        self.0.1.notify_all();
    }
    /// Waits until all connections have ended; returns their records.
    pub fn take(&self) -> Vec<MailRecord> {
        let shared = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(shared, PATIENCE, |shared| shared.open > 0);
        let (mut shared, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::take(&mut shared.records)
    }
    pub fn forget(&self) {
        self.with(|shared| (shared.records.clear(), shared.asked.clear()));
    }
    fn count(&self, key: &[u8]) -> usize {
        self.with(|shared| {
            let count = shared.asked.entry(key.to_vec()).or_default();
            *count += 1;
            *count
        })
    }
}

/// Responses of the authentication server, by name. `@` and a word is a server's port; `|` a pause; `SECOND` separates the
/// answer to the second request.
pub const ANSWERS: &[(&str, &str)] = &[
    ("good", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n"),
    (
        "pass",
        "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\nAuth-Pass: real\r\n\r\n",
    ),
    (
        "mapped",
        "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\nAuth-User: other name=x\r\n\
         Auth-Pass: other pass\r\n\r\n",
    ),
    (
        "emptied",
        "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\nAuth-User:\r\nAuth-Pass:\r\n\r\n",
    ),
    ("lower", "http/1.0 200 OK\r\nauth-status: OK\r\nauth-server: 127.0.0.1\r\nauth-port: @good\r\n\r\n"),
    ("small", "HTTP/1.0 200 OK\r\nauth-status: OK\r\nauth-server: 127.0.0.1\r\nauth-port: @good\r\n\r\n"),
    ("bare", "HTTP/1.0 200 OK\nAuth-Status: OK\nAuth-Server: 127.0.0.1\nAuth-Port: @good\n\n"),
    ("nostatusline", "Auth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n"),
    ("nostatus", "HTTP/1.0 500 Error\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\nbody"),
    ("spaced", "HTTP/1.0 200 OK\r\nAuth-Status:   OK  \r\nAuth-Server:127.0.0.1\r\nAuth-Port: @good \r\n\r\n"),
    ("pieces", "HTTP/1.0 2|00 OK\r|\nAuth-St|atus: OK\r\nAuth-Server|: 127.0.0|.1\r\nAuth-Port: @good\r\n\r|\n"),
    ("denied", "HTTP/1.0 200 OK\r\nAuth-Status: Invalid login or password\r\n\r\n"),
    ("code", "HTTP/1.0 200 OK\r\nAuth-Status: Temporary problem\r\nAuth-Error-Code: 451 4.3.0\r\n\r\n"),
    (
        "deniedtwice",
        "HTTP/1.0 200 OK\r\nAuth-Status: one\r\nAuth-Status: two\r\nAuth-Error-Code: 450\r\nAuth-Error-Code: 550 5.1.1\r\n\r\n",
    ),
    (
        "deniedok",
        "HTTP/1.0 200 OK\r\nAuth-Status: no\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n",
    ),
    ("deniedempty", "HTTP/1.0 200 OK\r\nAuth-Status:\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n"),
    ("renamed", "HTTP/1.0 200 OK\r\nAuth-Status: no\r\nAuth-User: else\r\n\r\n"),
    (
        "slow",
        "HTTP/1.0 200 OK\r\nAuth-Status: try again\r\nAuth-Wait: 1\r\n\r\nSECONDHTTP/1.0 200 OK\r\nAuth-Status: OK\r\n\
         Auth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n",
    ),
    (
        "again",
        "HTTP/1.0 200 OK\r\nAuth-Status: WAIT\r\nAuth-Wait: 1\r\nAuth-Pass: seen\r\n\r\nSECONDHTTP/1.0 200 OK\r\n\
         Auth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n",
    ),
    ("badwait", "HTTP/1.0 200 OK\r\nAuth-Status: no\r\nAuth-Wait: 1x\r\n\r\n"),
    ("negative", "HTTP/1.0 200 OK\r\nAuth-Status: no\r\nAuth-Wait: -1\r\n\r\n"),
    ("noserver", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Port: @good\r\n\r\n"),
    ("noport", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\n\r\n"),
    ("named", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: localhost\r\nAuth-Port: @good\r\n\r\n"),
    ("withport", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1:25\r\nAuth-Port: @good\r\n\r\n"),
    ("zeroport", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: 0\r\n\r\n"),
    ("highport", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: 65536\r\n\r\n"),
    ("wordport", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: imap\r\n\r\n"),
    ("plusport", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: +25\r\n\r\n"),
    ("refused", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: 1\r\n\r\n"),
    ("six", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: ::1\r\nAuth-Port: 1\r\n\r\n"),
    ("nothing", ""),
    ("onlyhead", "HTTP/1.0 200 OK\r\n\r\n"),
    ("cut", "HTTP/1.0 200 OK\r\nAuth-Status: O|"),
    ("cutstatus", "HTTP/1.0 200|"),
    ("badstatus", "HTTP/1.0 200 OK\rX\r\nAuth-Status: OK\r\n\r\n"),
    ("badname", "HTTP/1.0 200 OK\r\nAuth Status: OK\r\n\r\n"),
    ("badstart", "HTTP/1.0 200 OK\r\n-Auth: OK\r\n\r\n"),
    ("nocolon", "HTTP/1.0 200 OK\r\nAuth-Status\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: @good\r\n\r\n"),
    ("badend", "HTTP/1.0 200 OK\r\nAuth-Status: OK\rX\r\n\r\n"),
    ("badlast", "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\n\rX"),
    (
        "unused",
        "HTTP/1.0 200 OK\r\nServer: x\r\nX-Long: 0123456789\tabcdef\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\n\
         Auth-Port: @good\r\n\r\n",
    ),
];

/// Behaviour of a mail server: its greeting, its answer to the name, its answer to the password, and its answer to other lines;
/// `|` is a pause, `LONG` a long line, `END` the end of the connection, `TAG` the tag of IMAP's last line that has one.
struct Manner {
    name: &'static str,
    imap: [&'static str; 3],
    pop3: [&'static str; 3],
    smtp: [&'static str; 3],
}

const MANNERS: &[Manner] = &[
    Manner {
        name: "good",
        imap: ["* OK ready\r\n", "+ go\r\n", "TAG OK in\r\n"],
        pop3: ["+OK ready\r\n", "+OK name\r\n", "+OK in\r\n"],
        smtp: ["220 ready\r\n", "250 yes\r\n", "235 in\r\n"],
    },
    Manner {
        name: "pieces",
        imap: ["* |OK ready\r|\n", "+| go\r\n", "* CAPABILITY X\r\n|TAG OK in\r|\n"],
        pop3: ["+O|K ready\r|\n", "+|OK name\r\n", "+OK |in\r|\n"],
        smtp: ["220-one\r\n|220 rea|dy\r|\n", "250-yes\r\n|250-more\r\n250 |end\r\n", "23|5 in\r\n"],
    },
    Manner {
        name: "several",
        imap: ["* OK ready\r\n* more\r\n", "+ go\r\n", "* CAPABILITY IMAP4\r\nTAG OK in\r\n"],
        pop3: ["+OK ready\r\nmore\r\n", "+OK name\r\n", "+OK in\r\nmore\r\n"],
        smtp: ["220-a\r\n220 b\r\n", "250-a\r\n250-b\r\n250 c\r\n", "235-a\r\n235 in\r\n"],
    },
    Manner {
        name: "wrong",
        imap: ["* BYE no\r\n", "", ""],
        pop3: ["-ERR no\r\n", "", ""],
        smtp: ["554 no\r\n", "", ""],
    },
    Manner { name: "closed", imap: ["END", "", ""], pop3: ["END", "", ""], smtp: ["END", "", ""] },
    Manner { name: "long", imap: ["* OK LONG", "", ""], pop3: ["+OK LONG", "", ""], smtp: ["220 LONG", "", ""] },
    Manner {
        name: "cut",
        imap: ["* OK rea|END", "", ""],
        pop3: ["+OK rea|END", "", ""],
        smtp: ["220 rea|END", "", ""],
    },
    Manner { name: "short", imap: ["*\r\n|END", "", ""], pop3: ["+\r\n|END", "", ""], smtp: ["2\r\n|END", "", ""] },
    Manner {
        name: "noname",
        imap: ["* OK\r\n", "TAG NO name\r\n", ""],
        pop3: ["+OK\r\n", "-ERR name\r\n", ""],
        smtp: ["220 \r\n", "550 5.1.1 no\r\n", ""],
    },
    Manner {
        name: "nopass",
        imap: ["* OK\r\n", "+ \r\n", "TAG NO bad password\r\n"],
        pop3: ["+OK\r\n", "+OK\r\n", "-ERR bad password\r\n"],
        smtp: ["220 a\r\n", "250 b\r\n", "535 5.7.8 bad password\r\n"],
    },
    Manner {
        name: "badcapability",
        imap: ["* OK\r\n", "+ \r\n", "* CAPABILITY X\r\nTAG NO full\r\n"],
        pop3: ["+OK\r\n", "+OK\r\n", "-ERR a\r\n-ERR b\r\n"],
        smtp: ["220 a\r\n", "250-a\r\n550 b\r\n", "535-a\r\n535 b\r\n"],
    },
    Manner {
        name: "leaves",
        imap: ["* OK\r\n", "+ \r\n", "END"],
        pop3: ["+OK\r\n", "+OK\r\n", "END"],
        smtp: ["220 a\r\n", "250 b\r\n", "END"],
    },
    Manner {
        name: "longname",
        imap: ["* OK\r\n", "+ LONG\r\n", ""],
        pop3: ["+OK\r\n", "+OK LONG\r\n", ""],
        smtp: ["220 a\r\n", "250 LONG\r\n", ""],
    },
];

/// Names of all servers; a client that logs in as `at-NAME` gets to one.
pub fn server_manners() -> impl Iterator<Item = &'static str> {
    MANNERS.iter().map(|manner| manner.name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailProtocol {
    Imap,
    Pop3,
    Smtp,
}

impl MailProtocol {
    pub const ALL: [MailProtocol; 3] = [MailProtocol::Imap, MailProtocol::Pop3, MailProtocol::Smtp];
    pub fn name(self) -> &'static str {
        match self {
            MailProtocol::Imap => "imap",
            MailProtocol::Pop3 => "pop3",
            MailProtocol::Smtp => "smtp",
        }
    }
}

/// All run in background threads until the process ends.
pub struct MailServers {
    pub auth: u16,
    pub ledger: Ledger,
}

impl MailServers {
    /// # Errors
    /// No socket.
    pub fn start() -> std::io::Result<MailServers> {
        let ledger = Ledger::default();
        let mut ports = HashMap::new();
        for manner in MANNERS {
            for protocol in MailProtocol::ALL {
                let port = listen(&ledger, false, move |stream| serve(stream, manner, protocol))?;
                ports.insert(format!("{}-{}", protocol.name(), manner.name), port);
            }
        }
        let counted = ledger.clone();
        let auth = listen(&ledger, true, move |stream| authenticate(stream, &ports, &counted))?;
        Ok(MailServers { auth, ledger })
    }
}

/// Serves all connections, each on a thread.
fn listen(
    ledger: &Ledger,
    is_auth: bool,
    serve: impl Fn(&mut TcpStream) -> Vec<u8> + Send + Sync + Clone + 'static,
) -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr().map(|address| SocketAddr::port(&address))?;
    let ledger = ledger.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            ledger.open();
            let (ledger, serve) = (ledger.clone(), serve.clone());
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.set_nodelay(true);
                let bytes = serve(&mut stream);
                drop(stream);
                ledger.close(MailRecord { is_auth, bytes });
            });
        }
    });
    Ok(port)
}

fn field<'a>(request: &'a str, name: &str) -> &'a str {
    let line = request.split("\r\n").find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.strip_prefix(": ")).unwrap_or_default()
}

fn authenticate(stream: &mut TcpStream, ports: &HashMap<String, u16>, ledger: &Ledger) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    while !all.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buf) {
            Ok(n @ 1..) => all.extend_from_slice(&buf[..n]),
            _ => break,
        }
    }
    let request = String::from_utf8_lossy(&all).into_owned();
    let (protocol, user) = (field(&request, "Auth-Protocol"), field(&request, "Auth-User"));
    // Without a login the sender's address selects the answer.
    let user = match user {
        "" => field(&request, "Auth-SMTP-From").rsplit(['<', ':']).next().unwrap_or_default(),
        user => user,
    };
    let user = user.split(['%', '@', '>']).next().unwrap_or_default();
    let (name, at) = match user.strip_prefix("at-") {
        Some(at) => ("good", at),
        None => (user, "good"),
    };
    let answer =
        ANSWERS.iter().find(|(one, _)| *one == name).map_or("HTTP/1.0 200 OK\r\nAuth-Status: unknown\r\n\r\n", |a| a.1);
    let key = format!("{} {user}", field(&request, "Client-IP"));
    let (first, second) = answer.split_once("SECOND").unwrap_or((answer, answer));
    let answer = if ledger.count(key.as_bytes()) > 1 { second } else { first };
    let port = ports.get(&format!("{protocol}-{at}")).copied().unwrap_or(1);
    let _ = say(stream, &answer.replace("@good", &port.to_string()), "");
    all
}

/// Writes an answer with its pauses; `false`: the connection has ended.
fn say(stream: &mut TcpStream, text: &str, tag: &str) -> bool {
    let (text, ends) = text.strip_suffix("END").map_or((text, false), |text| (text, true));
    let text = text.replace("TAG", tag).replace("LONG", &"x".repeat(LONG_BYTES));
    for (i, part) in text.split('|').enumerate() {
        if i > 0 {
            std::thread::sleep(PAUSE);
        }
        if stream.write_all(part.as_bytes()).is_err() {
            return false;
        }
    }
    !ends
}

/// First bytes of a PROXY protocol header of version 2, the length of its fixed part, and the place of the rest's length.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_BYTES: usize = 16;

/// Returns the length of a PROXY protocol header at the start of received bytes; `None`: incomplete.
pub fn header_bytes(all: &[u8]) -> Option<usize> {
    if all.starts_with(b"PROXY ") {
        return all.iter().position(|c| *c == b'\n').map(|at| at + 1);
    }
    if all.first() != Some(&b'\r') {
        return Some(0);
    }
    match all.get(..FIXED_BYTES) {
        Some(fixed) if fixed.starts_with(SIGNATURE) => {
            let rest = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
            (all.len() >= FIXED_BYTES + rest).then_some(FIXED_BYTES + rest)
        }
        Some(_) => Some(0),
        None => None,
    }
}

/// One connection; returns the received bytes.
fn serve(stream: &mut TcpStream, manner: &Manner, protocol: MailProtocol) -> Vec<u8> {
    let (mut all, at, is_in) = lines(stream, manner, protocol);
    if is_in {
        // How many more of a client's lines arrive before the end is chance.
        all.truncate(at);
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if !is_in {
            all.extend_from_slice(&buf[..n]);
        }
    }
    all
}

/// Answers lines until the end; returns the received bytes, the end of the last answered line, and whether the client is
/// logged in.
fn lines(stream: &mut TcpStream, manner: &Manner, protocol: MailProtocol) -> (Vec<u8>, usize, bool) {
    let answers = match protocol {
        MailProtocol::Imap => manner.imap,
        MailProtocol::Pop3 => manner.pop3,
        MailProtocol::Smtp => manner.smtp,
    };
    let [greeting, name, password] = answers;
    let (mut all, mut at, mut buf) = (Vec::<u8>::new(), 0, [0; 4096]);
    let (mut tag, mut asked, mut is_in) = (String::new(), 0, false);
    if !say(stream, greeting, "") {
        return (all, at, is_in);
    }
    loop {
        if at == 0 && !all.is_empty() {
            at = header_bytes(&all).unwrap_or(0);
        }
        while let Some(end) = all.get(at..).and_then(|rest| rest.iter().position(|c| *c == b'\n')) {
            let line = String::from_utf8_lossy(&all[at..at + end]).trim_end().to_string();
            at += end + 1;
            let upper = line.to_ascii_uppercase();
            let goes_on = match protocol {
                _ if is_in => {
                    let quits = upper.contains("QUIT") || upper.contains("LOGOUT");
                    say(stream, &format!("said {line}\r\n"), "") && !quits
                }
                MailProtocol::Imap if asked < 2 => {
                    if asked == 0 {
                        tag = line.split(' ').next().unwrap_or_default().to_string();
                    }
                    asked += 1;
                    say(stream, name, &tag)
                }
                MailProtocol::Pop3 if asked < 1 => {
                    asked += 1;
                    say(stream, name, "")
                }
                MailProtocol::Smtp
                    if upper.starts_with("HELO") || upper.starts_with("EHLO") || upper.starts_with("XCLIENT") =>
                {
                    say(stream, if upper.starts_with("XCLIENT") { "220 x\r\n" } else { name }, "")
                }
                MailProtocol::Smtp if !upper.starts_with("AUTH") => {
                    is_in = upper.starts_with("RCPT");
                    let quits = upper.starts_with("QUIT");
                    let refuses = password.starts_with("535");
                    say(stream, if is_in && refuses { "550 5.1.1 no such\r\n" } else { "250 2.0.0 taken\r\n" }, "")
                        && !quits
                }
                _ => {
                    is_in = true;
                    say(stream, password, &tag)
                }
            };
            if !goes_on {
                return (all, at, is_in);
            }
        }
        match stream.read(&mut buf) {
            Ok(n @ 1..) => all.extend_from_slice(&buf[..n]),
            _ => return (all, at, is_in),
        }
    }
}
