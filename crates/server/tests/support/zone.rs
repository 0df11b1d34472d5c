//! A name server over UDP with one zone, "upd.test", which takes signed updates of TXT records (RFC 2136, RFC 8945).

#![allow(dead_code, reason = "every test file uses another part")]

use aws_lc_rs::hmac;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
/// The key in the form of BIND.
pub const KEY: &str =
    "key \"k\" {\n\talgorithm hmac-sha256;\n\tsecret \"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\";\n};\n";
/// Name of the key, and of its algorithm, on the wire.
const KEY_NAME: &[u8] = b"\x01k\x00";
const ALGORITHM: &[u8] = b"\x0bhmac-sha256\x00";
const ZONE: &[u8] = b"\x03upd\x04test\x00";
/// Bytes of the signature's record: name, type, class, TTL, length, and 61 bytes of data.
const TSIG_BYTES: usize = 3 + 10 + 61;

/// See the module's documentation.
pub struct Zone {
    pub port: u16,
    /// Names on the wire, and texts.
    pub records: Arc<Mutex<Vec<(Vec<u8>, Vec<u8>)>>>,
    pub updates: Arc<Mutex<usize>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Zone {
    pub fn start() -> Zone {
        let socket = UdpSocket::bind(("127.0.0.1", testkit::free_port())).expect("a port");
        let port = socket.local_addr().expect("an address").port();
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let (records, updates, over) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut zone = Zone { port, records, updates, over, thread: None };
        let (records, updates, over) = (zone.records.clone(), zone.updates.clone(), zone.over.clone());
        zone.thread = Some(std::thread::spawn(move || {
            let mut buf = [0; 4096];
            while !over.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buf) else { continue };
                let message = &buf[..length];
                let answer = match message.get(2).map(|flags| flags >> 3 & 15) {
                    Some(5) => {
                        *updates.lock().expect("not poisoned") += 1;
                        update(message, &mut records.lock().expect("not poisoned"))
                    }
                    _ => question(message, &records.lock().expect("not poisoned")),
                };
                let _ = socket.send_to(&answer, from);
            }
        }));
        zone
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Length of a name without compression.
fn name_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = bytes.get(at).filter(|length| **length > 0) {
        at += 1 + usize::from(*length);
    }
    at + 1
}

fn question(message: &[u8], records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let name = message[12..12 + name_length(&message[12..])].to_ascii_lowercase();
    let end = 12 + name.len() + 4;
    let kind = u16::from_be_bytes([message[end - 4], message[end - 3]]);
    let mut body = Vec::new();
    let (mut answers, mut authorities) = (0, 0);
    let found: Vec<_> = records.iter().filter(|(own, _)| kind == 16 && *own == name).collect();
    for (_, text) in found {
        body.extend_from_slice(&[0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0]);
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text);
        answers += 1;
    }
    if answers == 0 {
        body.extend_from_slice(ZONE);
        body.extend_from_slice(&[0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
        body.extend_from_slice(&[0; 20]);
        authorities = 1;
    }
    let mut out = message[..2].to_vec();
    out.extend_from_slice(&[0x84, 0, 0, 1, 0, answers, 0, authorities, 0, 0]);
    out.extend_from_slice(&message[12..end]);
    out.extend_from_slice(&body);
    out
}

/// Signs the bytes: those before, the message, and the signature's variables.
fn code(before: &[u8], message: &[u8], time: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let variables = [KEY_NAME, &[0, 255, 0, 0, 0, 0], ALGORITHM, time, &[0; 4]].concat();
    hmac::sign(&key, &[before, message, &variables].concat()).as_ref().to_vec()
}

fn update(message: &[u8], records: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
    let mut head = [&message[..2], &[0xa8, 0], &[0; 8]].concat();
    let refuse = |head: &mut Vec<u8>| {
        head[3] = 9;
        head.clone()
    };
    let Some(end) = message.len().checked_sub(TSIG_BYTES).filter(|_| message[11] == 1) else {
        return refuse(&mut head);
    };
    let tsig = &message[end..];
    let data = &tsig[3 + 10 + ALGORITHM.len()..];
    let (time, own) = (&data[..8], &data[10..42]);
    let mut unsigned = message[..end].to_vec();
    unsigned[11] = 0;
    if !tsig.starts_with(KEY_NAME) || code(&[], &unsigned, time) != own {
        return refuse(&mut head);
    }
    // One zone and one change of one record, without compression.
    let body = &unsigned[12..];
    assert!(body.starts_with(ZONE), "the zone of the update");
    let body = &body[ZONE.len() + 4..];
    let name = body[..name_length(body)].to_ascii_lowercase();
    assert!(name.ends_with(ZONE), "a name of the zone");
    let body = &body[name.len()..];
    let (class, text) = (u16::from_be_bytes([body[2], body[3]]), body[10..].to_vec());
    match class {
        1 => records.push((name, text)),
        254 => records.retain(|known| *known != (name.clone(), text.clone())),
        _ => panic!("class {class}"),
    }
    let before = [&32u16.to_be_bytes()[..], own].concat();
    let signed = code(&before, &head, time);
    head[11] = 1;
    let data = [ALGORITHM, time, &[0, 32], &signed, &message[..2], &[0; 4]].concat();
    [&head, KEY_NAME, &[0, 250, 0, 255, 0, 0, 0, 0, 0, 61], &data].concat()
}
