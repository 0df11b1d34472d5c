//! dns-01 without a foreign name server (Angie: `acme_dns_port`): answers queries for `_acme-challenge` names over UDP,
//! to which the zones of the names delegate.
//!
//! Known names are those of clients with `challenge=dns`. Malformed packets are dropped.

use super::dns::challenge_record;
use acme::Identifier;
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

/// Texts of a name: several clients may prove it at a time.
const TEXTS_MAX: usize = 16;
/// Bytes of a response without EDNS (RFC 1035, section 4.2.1), and the most that is sent over UDP.
const PLAIN_BYTES: usize = 512;
const UDP_BYTES_MAX: usize = 1232;
const NAME_BYTES_MAX: usize = 255;
const HEAD_BYTES: usize = 12;
const PREFIX: &str = "_acme-challenge.";

const TXT: u16 = 16;
const OPT: u16 = 41;
const ANY: u16 = 255;
const IN: u16 = 1;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

/// Texts of the present challenges, by name.
static TEXTS: LazyLock<RwLock<HashMap<String, Vec<String>>>> = LazyLock::new(RwLock::default);

/// Answers for the challenge of an identifier from now on.
///
/// # Errors
/// The name has too many challenges.
pub fn add_challenge(identifier: &Identifier, authorization: &str) -> Result<(), String> {
    let (name, value) = challenge_record(identifier, authorization);
    let mut all = TEXTS.write().unwrap_or_else(PoisonError::into_inner);
    let texts = all.entry(name).or_default();
    if texts.len() >= TEXTS_MAX {
        return Err(format!("more than {TEXTS_MAX} DNS challenges of one name"));
    }
    texts.push(value);
    Ok(())
}

/// Stops answering.
pub fn remove_challenge(identifier: &Identifier, authorization: &str) {
    let (name, value) = challenge_record(identifier, authorization);
    let mut all = TEXTS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(texts) = all.get_mut(&name) {
        if let Some(at) = texts.iter().position(|text| *text == value) {
            texts.swap_remove(at);
        }
        if texts.is_empty() {
            all.remove(&name);
        }
    }
}

/// A query with one question.
struct Query<'a> {
    /// With the question's name, type and class.
    head: &'a [u8],
    /// In lower case, with a final dot.
    name: String,
    kind: u16,
    class: u16,
    opcode: u8,
    /// Size of the client's buffer (EDNS).
    buffer: Option<u16>,
}

fn number(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// Reads an uncompressed name; returns its end.
fn name(packet: &[u8], mut at: usize, out: &mut String) -> Option<usize> {
    let start = at;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some(at);
        }
        if length > 63 || at + length - start >= NAME_BYTES_MAX {
            return None;
        }
        let label = packet.get(at..at + length)?;
        // Other bytes than those of host names match no name.
        out.extend(
            label.iter().map(|c| if c.is_ascii_graphic() && *c != b'.' { c.to_ascii_lowercase() as char } else { '?' }),
        );
        out.push('.');
        at += length;
    }
}

impl Query<'_> {
    /// Returns `None` for a DNS response and for a malformed packet.
    fn parse(packet: &[u8]) -> Option<Query<'_>> {
        let (flags, questions) = (*packet.get(2)?, number(packet, 4)?);
        let (answers, authorities, additional) = (number(packet, 6)?, number(packet, 8)?, number(packet, 10)?);
        if flags & 0x80 != 0 || questions != 1 || answers != 0 || authorities != 0 || additional > 2 {
            return None;
        }
        let mut own = String::new();
        let at = name(packet, HEAD_BYTES, &mut own)?;
        let (kind, class) = (number(packet, at)?, number(packet, at + 2)?);
        let end = at + 4;
        let (mut at, mut buffer) = (end, None);
        for _ in 0..additional {
            at = name(packet, at, &mut String::new())?;
            if number(packet, at)? == OPT {
                buffer = Some(number(packet, at + 2)?);
            }
            at += 10 + usize::from(number(packet, at + 8)?);
            packet.get(..at)?;
        }
        Some(Query { head: packet.get(..end)?, name: own, kind, class, opcode: flags >> 3 & 15, buffer })
    }

    fn respond(&self, code: u8, texts: &[String], ttl: u32, out: &mut Vec<u8>) {
        let limit = self.buffer.map_or(PLAIN_BYTES, |buffer| usize::from(buffer).clamp(PLAIN_BYTES, UDP_BYTES_MAX));
        out.clear();
        out.extend_from_slice(self.head);
        let opt: &[u8] = if self.buffer.is_some() { &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0] } else { &[] };
        let mut answers = 0;
        let mut cut = false;
        for text in texts {
            let Ok(length) = u8::try_from(text.len()) else { continue };
            if out.len() + 13 + text.len() + opt.len() > limit {
                cut = true;
                break;
            }
            out.extend_from_slice(&[0xc0, HEAD_BYTES as u8, 0, TXT as u8, 0, IN as u8]);
            out.extend_from_slice(&ttl.to_be_bytes());
            out.extend_from_slice(&(u16::from(length) + 1).to_be_bytes());
            out.push(length);
            out.extend_from_slice(text.as_bytes());
            answers += 1;
        }
        out.extend_from_slice(opt);
        let authority = if code == 0 { 4 } else { 0 };
        let recursion_desired = self.head.get(2).copied().unwrap_or_default() & 1;
        let flags = [0x80 | self.opcode << 3 | authority | u8::from(cut) << 1 | recursion_desired, code];
        let counts = [0, 1, 0, answers, 0, 0, 0, u8::from(self.buffer.is_some())];
        for (at, byte) in flags.into_iter().chain(counts).enumerate() {
            if let Some(place) = out.get_mut(2 + at) {
                *place = byte;
            }
        }
    }
}

/// Responds to a query for a known name; `false`: a malformed packet, or another name's query.
pub fn respond_own(packet: &[u8], known: impl Fn(&str) -> bool, ttl: u32, out: &mut Vec<u8>) -> bool {
    let Some(query) = Query::parse(packet) else { return false };
    let host = query.name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix('.'));
    if query.opcode != 0 || query.class != IN || !host.is_some_and(known) {
        return false;
    }
    let texts = match query.kind {
        TXT | ANY => TEXTS.read().unwrap_or_else(PoisonError::into_inner).get(&query.name).cloned(),
        _ => None,
    };
    query.respond(0, &texts.unwrap_or_default(), ttl, out);
    true
}

/// Refuses a query; `false`: a malformed packet.
pub fn refuse_query(packet: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(query) = Query::parse(packet) else { return false };
    query.respond(if query.opcode == 0 { REFUSED } else { NOT_IMPLEMENTED }, &[], 0, out);
    true
}

/// Body of the fuzz target: responses are bounded, are responses to the query, and refusals follow the same rules.
///
/// # Panics
/// One of these does not hold.
pub fn fuzz_responder(data: &[u8]) {
    let (mut answer, mut refusal) = (Vec::new(), Vec::new());
    let answered = respond_own(data, |_| true, 1, &mut answer);
    let readable = refuse_query(data, &mut refusal);
    assert!(readable || !answered, "an answer to a malformed packet");
    for response in
        [(answered, &answer), (readable, &refusal)].into_iter().filter(|(sent, _)| *sent).map(|(_, text)| text)
    {
        assert!(response.len() <= data.len() + 16 && response.len() <= UDP_BYTES_MAX, "an amplified response");
        assert!(response.get(..2) == data.get(..2) && response.get(2).is_some_and(|flags| flags & 0x80 != 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16, opt: bool) -> Vec<u8> {
        let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(opt)];
        for label in name.split('.') {
            packet.push(label.len() as u8);
            packet.extend_from_slice(label.as_bytes());
        }
        packet.push(0);
        packet.extend_from_slice(&kind.to_be_bytes());
        packet.extend_from_slice(&[0, 1]);
        if opt {
            packet.extend_from_slice(&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        }
        packet
    }

    #[test]
    fn own_names_are_answered() {
        let identifier = Identifier::parse("*.responder.test").expect("valid");
        let known = |name: &str| name == "responder.test";
        let ask = |packet: &[u8]| {
            let mut out = Vec::new();
            respond_own(packet, known, 60, &mut out).then_some(out)
        };
        // Letters keep their case in the question (resolvers mix it).
        let mixed = query("_acme-Challenge.Responder.TEST", TXT, true);
        let empty = ask(&mixed).expect("a known name");
        assert_eq!(&empty[..12], &[0x12, 0x34, 0x85, 0, 0, 1, 0, 0, 0, 0, 0, 1], "no text yet");
        add_challenge(&identifier, "a.b").expect("added");
        let full = ask(&mixed).expect("a known name");
        assert_eq!(&full[..12], &[0x12, 0x34, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
        assert_eq!(&full[12..mixed.len() - 11], &mixed[12..mixed.len() - 11], "the question as sent");
        let record = &full[mixed.len() - 11..];
        assert_eq!(&record[..13], &[0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, 44, 43]);
        assert_eq!(record.len(), 13 + 43 + 11);
        assert_eq!(ask(&query("_acme-challenge.responder.test", 1, false)).expect("known")[7], 0, "no address");
        assert_eq!(ask(&query("_acme-challenge.other.test", TXT, false)), None);
        assert_eq!(ask(&query("responder.test", TXT, false)), None);
        let mut refused = Vec::new();
        assert!(refuse_query(&query("_acme-challenge.other.test", TXT, false), &mut refused));
        assert_eq!(refused[3], REFUSED);
        // Without EDNS a response ends at 512 bytes.
        for n in 1..TEXTS_MAX {
            add_challenge(&identifier, &format!("a.{n}")).expect("added");
        }
        assert!(add_challenge(&identifier, "more").is_err());
        let cut = ask(&query("_acme-challenge.responder.test", TXT, false)).expect("known");
        assert!(cut.len() <= PLAIN_BYTES && cut[2] & 2 != 0, "{} bytes", cut.len());
        assert!(ask(&query("_acme-challenge.responder.test", TXT, true)).expect("known").len() <= UDP_BYTES_MAX);
        for authorization in (1..TEXTS_MAX).map(|n| format!("a.{n}")).chain(["a.b".into()]) {
            remove_challenge(&identifier, &authorization);
        }
        assert_eq!(ask(&mixed).expect("known")[7], 0);
    }

    #[test]
    fn malformed_packets_are_dropped() {
        // A name without texts, which would make responses longer.
        let whole = query("_acme-challenge.malformed.test", TXT, true);
        let mut out = Vec::new();
        for end in 0..whole.len() {
            assert!(!respond_own(&whole[..end], |_| true, 1, &mut out), "{end} bytes");
            assert!(!refuse_query(&whole[..end], &mut out), "{end} bytes");
        }
        let changed = |at: usize, byte: u8| {
            let mut packet = whole.clone();
            packet[at] = byte;
            packet
        };
        // A response, two questions, a compressed name.
        for packet in [changed(2, 0x80), changed(5, 2), changed(12, 0xc0)] {
            assert!(!refuse_query(&packet, &mut out), "{packet:?}");
        }
        for at in 0..whole.len() {
            [0, 1, 0x3f, 0x40, 0x80, 0xff].into_iter().for_each(|byte| fuzz_responder(&changed(at, byte)));
        }
        let mut notify = Vec::new();
        assert!(refuse_query(&changed(2, 0x20), &mut notify));
        assert_eq!(notify[3], NOT_IMPLEMENTED);
    }

    /// splitmix64
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        }
        /// Below `end`, which is positive.
        fn below(&mut self, end: usize) -> usize {
            self.next() as usize % end
        }
        fn bytes(&mut self, length: usize) -> Vec<u8> {
            (0..length).map(|_| self.next() as u8).collect()
        }
    }

    /// Makes a packet: noise, or a query with up to eight changes of bytes, lengths, parts and counts.
    fn packet(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
        if random.below(10) == 0 {
            let length = random.below(600);
            return random.bytes(length);
        }
        let mut packet = seeds[random.below(seeds.len())].clone();
        for _ in 0..random.below(9) {
            let at = random.below(packet.len().max(1));
            match random.below(7) {
                0 => packet.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
                1 => {
                    let new = [0, 1, 0x3f, 0x40, 0xc0, 0xff][random.below(6)];
                    packet.iter_mut().skip(at).take(1).for_each(|byte| *byte = new);
                }
                2 => packet.truncate(at),
                3 => {
                    let length = random.below(70);
                    let more = random.bytes(length);
                    packet.splice(at..at, more);
                }
                4 => {
                    let other = &seeds[random.below(seeds.len())];
                    packet.extend_from_slice(&other[random.below(other.len())..]);
                }
                5 => {
                    let (at, new) = (4 + random.below(8), random.next() as u8 % 4);
                    packet.iter_mut().skip(at).take(1).for_each(|count| *count = new);
                }
                _ => {
                    let end = (at + random.below(40)).min(packet.len());
                    packet.drain(at.min(end)..end);
                }
            }
        }
        packet
    }

    /// Reads a response on its own account: its question is the query's, and each record is a text of the name.
    fn check(query: &[u8], response: &[u8], texts: &[String]) {
        assert!(response.len() <= UDP_BYTES_MAX && response[..2] == query[..2] && response[2] & 0x80 != 0);
        assert_eq!((response[4..6].to_vec(), response[8..11].to_vec()), (vec![0, 1], vec![0, 0, 0]));
        let mut at = HEAD_BYTES;
        while response[at] != 0 {
            at += 1 + usize::from(response[at]);
        }
        at += 5;
        assert_eq!(response[HEAD_BYTES..at], query[HEAD_BYTES..at], "the question");
        for _ in 0..response[7] {
            assert_eq!(response[at..at + 6], [0xc0, HEAD_BYTES as u8, 0, TXT as u8, 0, 1]);
            let length = usize::from(response[at + 12]);
            assert_eq!(usize::from(response[at + 11]), length + 1);
            let text = std::str::from_utf8(&response[at + 13..at + 13 + length]).expect("a text");
            assert!(texts.iter().any(|own| own == text));
            at += 13 + length;
        }
        assert_eq!(response.len() - at, usize::from(response[11]) * 11, "EDNS alone follows");
    }

    #[test]
    fn any_packet_has_a_well_formed_answer_or_none() {
        let name = "_acme-challenge.property.test";
        let long = format!("{}.property.test", ["a".repeat(63), "b".repeat(63), "c".repeat(63)].join("."));
        let seeds = [
            query(name, TXT, false),
            query(name, TXT, true),
            query("_ACME-challenge.Property.test", ANY, true),
            query(name, 1, false),
            query("other.test", TXT, true),
            query(&long, TXT, true),
        ];
        let mut random = Random(20_261_124);
        for _ in 0..100_000 {
            fuzz_responder(&packet(&mut random, &seeds));
        }
        let identifier = Identifier::parse("property.test").expect("valid");
        let authorizations: Vec<String> = (0..TEXTS_MAX).map(|n| format!("token.{n}")).collect();
        authorizations.iter().try_for_each(|authorization| add_challenge(&identifier, authorization)).expect("added");
        let texts: Vec<String> = authorizations.iter().map(|text| challenge_record(&identifier, text).1).collect();
        let (mut answered, mut with_texts) = (0, 0);
        for _ in 0..100_000 {
            let packet = packet(&mut random, &seeds);
            let mut out = Vec::new();
            if respond_own(&packet, |name| name == "property.test", 60, &mut out) {
                check(&packet, &out, &texts);
                answered += 1;
                with_texts += usize::from(out[7] > 0);
            } else {
                assert!(out.is_empty());
            }
            if refuse_query(&packet, &mut out) {
                check(&packet, &out, &[]);
            }
        }
        // The mutations leave enough packets that are queries.
        assert!(answered > 9_000 && with_texts > 7_000, "{answered} {with_texts}");
        authorizations.iter().for_each(|authorization| remove_challenge(&identifier, authorization));
    }
}
