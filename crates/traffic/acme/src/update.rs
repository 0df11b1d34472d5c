//! Messages of dynamic DNS updates (RFC 2136), signed with TSIG (RFC 8945). No I/O, no clock.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Seconds by which the clocks of client and server may differ.
const FUDGE: u16 = 300;
/// Seconds for which other servers may keep a record.
const TTL: u32 = 60;
/// Jumps within a compressed name.
const JUMPS_MAX: usize = 64;

const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
const TYPE_TSIG: u16 = 250;
const CLASS_IN: u16 = 1;
const CLASS_NONE: u16 = 254;
const CLASS_ANY: u16 = 255;
/// Opcode UPDATE.
const UPDATE: u16 = 5 << 11;
const RESPONSE: u16 = 1 << 15;
const NXDOMAIN: u16 = 3;

/// A change of one TXT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordChange {
    Add,
    Remove,
}

/// A TSIG key.
pub struct TsigKey {
    name: Vec<u8>,
    algorithm: Vec<u8>,
    key: hmac::Key,
}

impl TsigKey {
    /// Parses a key in the form of BIND: `key "NAME" { algorithm hmac-sha256; secret "BASE64"; };`.
    ///
    /// # Errors
    /// A description of the invalid part.
    pub fn parse(text: &str) -> Result<TsigKey, String> {
        let separator = |c: char| c.is_whitespace() || ";{}\"".contains(c);
        let words: Vec<&str> = text.split(separator).filter(|word| !word.is_empty()).collect();
        let after = |what: &str| {
            let at = words.iter().position(|word| *word == what).ok_or_else(|| format!("it has no \"{what}\""))?;
            words.get(at + 1).copied().ok_or_else(|| format!("it has no {what}"))
        };
        let algorithm = after("algorithm")?.trim_end_matches('.').to_ascii_lowercase();
        let hash = match algorithm.as_str() {
            "hmac-sha256" => hmac::HMAC_SHA256,
            "hmac-sha384" => hmac::HMAC_SHA384,
            "hmac-sha512" => hmac::HMAC_SHA512,
            _ => return Err(format!("unsupported algorithm \"{algorithm}\"")),
        };
        let secret = STANDARD.decode(after("secret")?).ok().filter(|secret| !secret.is_empty());
        let secret = secret.ok_or("its secret is not base64")?;
        let encoded = |name: &str| name_bytes(name).ok_or_else(|| format!("invalid name \"{name}\""));
        Ok(TsigKey {
            name: encoded(after("key")?)?,
            algorithm: encoded(&algorithm)?,
            key: hmac::Key::new(hash, &secret),
        })
    }

    fn sign(&self, before: &[u8], message: &[u8], time: u64, error: u16, other: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(before);
        context.update(message);
        context.update(&self.name);
        context.update(&CLASS_ANY.to_be_bytes());
        context.update(&0u32.to_be_bytes());
        context.update(&self.algorithm);
        context.update(&stamp(time));
        context.update(&error.to_be_bytes());
        context.update(&(other.len() as u16).to_be_bytes());
        context.update(other);
        context.sign()
    }
}

/// Time signed (48 bits) and fudge.
fn stamp(time: u64) -> [u8; 8] {
    let [_, _, a, b, c, d, e, f] = time.to_be_bytes();
    let [g, h] = FUDGE.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Encodes a name without compression, in lower case.
fn name_bytes(name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        out.push(length);
        out.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    out.push(0);
    (out.len() <= 255).then_some(out)
}

fn head(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for number in [id, flags].into_iter().chain(counts) {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out
}

/// Writes the question for the zone of a name; `None` for a name that is none.
pub fn zone_question(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut out = head(id, 0, [1, 0, 0, 0]);
    out.extend_from_slice(&name_bytes(name)?);
    out.extend_from_slice(&[TYPE_SOA.to_be_bytes(), CLASS_IN.to_be_bytes()].concat());
    Some(out)
}

/// Writes the change of a TXT record; `None` for names or values that are none.
pub fn write_change(id: u16, zone: &str, name: &str, value: &str, change: RecordChange) -> Option<Vec<u8>> {
    let mut out = head(id, UPDATE, [1, 0, 1, 0]);
    out.extend_from_slice(&name_bytes(zone)?);
    out.extend_from_slice(&[TYPE_SOA.to_be_bytes(), CLASS_IN.to_be_bytes()].concat());
    out.extend_from_slice(&name_bytes(name)?);
    let (class, ttl) = match change {
        RecordChange::Add => (CLASS_IN, TTL),
        RecordChange::Remove => (CLASS_NONE, 0),
    };
    out.extend_from_slice(&[TYPE_TXT.to_be_bytes(), class.to_be_bytes()].concat());
    out.extend_from_slice(&ttl.to_be_bytes());
    let length = u8::try_from(value.len()).ok()?;
    out.extend_from_slice(&(u16::from(length) + 1).to_be_bytes());
    out.push(length);
    out.extend_from_slice(value.as_bytes());
    Some(out)
}

/// A signed message, and its code, to which the response's refers.
pub struct SignedMessage {
    pub bytes: Vec<u8>,
    pub code: Vec<u8>,
}

/// Signs a message; `time` in seconds since 1970.
pub fn sign_message(mut message: Vec<u8>, key: &TsigKey, time: u64) -> SignedMessage {
    let code = key.sign(&[], &message, time, 0, &[]).as_ref().to_vec();
    let id = message.get(..2).unwrap_or_default().to_vec();
    message.extend_from_slice(&key.name);
    message.extend_from_slice(&[TYPE_TSIG.to_be_bytes(), CLASS_ANY.to_be_bytes(), [0; 2], [0; 2]].concat());
    let data = [&key.algorithm, &stamp(time)[..], &(code.len() as u16).to_be_bytes(), &code, &id, &[0; 4]].concat();
    message.extend_from_slice(&(data.len() as u16).to_be_bytes());
    message.extend_from_slice(&data);
    // One additional record: the messages of this module have no other.
    if let Some(count) = message.get_mut(11) {
        *count = 1;
    }
    SignedMessage { bytes: message, code }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A record of a response.
struct ResponseRecord {
    name: Vec<u8>,
    kind: u16,
    /// Start of the record, and its data.
    start: usize,
    data: std::ops::Range<usize>,
}

impl Reader<'_> {
    fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes.get(self.at..self.at + 2)?;
        self.at += 2;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    }
    /// Reads a name; the result is without compression, in lower case.
    fn name(&mut self) -> Option<Vec<u8>> {
        let (mut out, mut at, mut end) = (Vec::new(), self.at, None);
        for _ in 0..JUMPS_MAX + 128 {
            let length = *self.bytes.get(at)?;
            match length {
                0 => {
                    out.push(0);
                    self.at = end.unwrap_or(at + 1);
                    return (out.len() <= 255).then_some(out);
                }
                1..=63 => {
                    let label = self.bytes.get(at..at + 1 + usize::from(length))?;
                    out.extend(label.iter().map(u8::to_ascii_lowercase));
                    at += label.len();
                }
                192.. => {
                    end = end.or(Some(at + 2));
                    at = usize::from(u16::from_be_bytes([length & 63, *self.bytes.get(at + 1)?]));
                }
                _ => return None,
            }
        }
        None
    }
    fn record(&mut self) -> Option<ResponseRecord> {
        let start = self.at;
        let name = self.name()?;
        let kind = self.u16()?;
        self.at += 6;
        let length = usize::from(self.u16()?);
        let data = self.at..self.at.checked_add(length)?;
        self.bytes.get(data.clone())?;
        self.at = data.end;
        Some(ResponseRecord { name, kind, start, data })
    }
}

/// A response, without its signature.
struct UpdateResponse {
    flags: u16,
    records: Vec<ResponseRecord>,
}

fn parse(bytes: &[u8], id: u16) -> Option<UpdateResponse> {
    let mut reader = Reader { bytes, at: 0 };
    let (own, flags) = (reader.u16()?, reader.u16()?);
    let counts = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
    if own != id || flags & RESPONSE == 0 {
        return None;
    }
    for _ in 0..*counts.first()? {
        reader.name()?;
        reader.at += 4;
    }
    let count: usize = counts.iter().skip(1).map(|count| usize::from(*count)).sum();
    let records = (0..count).map(|_| reader.record()).collect::<Option<Vec<_>>>()?;
    Some(UpdateResponse { flags, records })
}

fn text(name: &[u8]) -> Option<String> {
    let (mut labels, mut rest) = (Vec::new(), name);
    while let Some((length, tail)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, next) = tail.split_at_checked(usize::from(*length))?;
        labels.push(std::str::from_utf8(label).ok()?);
        rest = next;
    }
    Some(labels.join("."))
}

/// Reads the name of the zone from the response to [`zone_question`]. Returns `None` for any other message.
///
/// # Errors
/// The server refuses, or does not know the zone.
pub fn zone_of(response: &[u8], id: u16, name: &str) -> Option<Result<String, String>> {
    let parsed = parse(response, id)?;
    let code = parsed.flags & 15;
    let own = name_bytes(name)?;
    let found = parsed.records.iter().find(|record| record.kind == TYPE_SOA && own.ends_with(&record.name));
    Some(match found.and_then(|record| text(&record.name)) {
        Some(zone) if (code == 0 || code == NXDOMAIN) && !zone.is_empty() => Ok(zone),
        _ => Err(format!("the name server does not know the zone of \"{name}\" ({})", code_name(code))),
    })
}

/// Judges the response to an update; the signature of a signed one is verified. Returns `None` for a message that
/// cannot be trusted.
///
/// # Errors
/// The server refuses.
pub fn judge_outcome(response: &[u8], id: u16, signed: Option<(&TsigKey, &[u8])>) -> Option<Result<(), String>> {
    let parsed = parse(response, id)?;
    let code = parsed.flags & 15;
    let refused = || Err(format!("the name server refuses the update ({})", code_name(code)));
    if let Some((key, request)) = signed {
        let Some(tsig) = parsed.records.last().filter(|record| record.kind == TYPE_TSIG) else {
            // A server that cannot verify the request cannot sign. A success without a signature may be forged.
            return (code != 0).then(refused);
        };
        let mut reader = Reader { bytes: response, at: tsig.data.start };
        let algorithm = reader.name()?;
        let time = response.get(reader.at..reader.at + 6)?;
        let time = time.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        reader.at += 8;
        let length = usize::from(reader.u16()?);
        let mac = response.get(reader.at..reader.at + length)?;
        reader.at += length + 2;
        let error = reader.u16()?;
        let other = usize::from(reader.u16()?);
        let other = response.get(reader.at..reader.at + other)?;
        if error != 0 && code != 0 {
            return Some(Err(format!("the name server refuses the signature (TSIG error {error})")));
        }
        let mut message = response.get(..tsig.start)?.to_vec();
        let count = u16::from_be_bytes(message.get(10..12)?.try_into().ok()?).checked_sub(1)?;
        message.get_mut(10..12)?.copy_from_slice(&count.to_be_bytes());
        let before = [&(request.len() as u16).to_be_bytes()[..], request].concat();
        let own = key.sign(&before, &message, time, error, other);
        let equal = aws_lc_rs::constant_time::verify_slices_are_equal(own.as_ref(), mac).is_ok();
        if tsig.name != key.name || algorithm != key.algorithm || !equal {
            return None;
        }
    }
    Some(if code == 0 { Ok(()) } else { refused() })
}

fn code_name(code: u16) -> String {
    let names = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET"];
    match (names.get(usize::from(code)), code) {
        (Some(name), _) => (*name).to_string(),
        (None, 9) => "NOTAUTH".into(),
        (None, 10) => "NOTZONE".into(),
        (None, code) => code.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "key \"Acme-Key\" {\n\talgorithm hmac-sha256;\n\tsecret \"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\";\n};\n";

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16).expect("hex"))
            .collect()
    }

    // Messages of dnspython 2.
    const REQUEST: &str = "123428000001000000010001076578616d706c6503636f6d00000600010f5f61636d652d6368616c6c656e6765c00c00\
        1000010000003c00080776616c75652d310861636d652d6b65790000fa00ff00000000003d0b686d61632d7368613235\
        360000006553f100012c0020d93448845e56aef8ca3fb69e86b89a98a6de51f7608b1d4ff4519364c727315212340000\
        0000";
    const RESPONSE: &str = "1234a8000001000000000001076578616d706c6503636f6d00000600010861636d652d6b65790000fa00ff0000000000\
        3d0b686d61632d7368613235360000006553f100012c00201f8b4461f4e15c692ce9e29ecff33ed7153189fff355ead8\
        8e43826a4ce30b06123400000000";
    const DELETION: &str = "123428000001000000010000076578616d706c6503636f6d00000600010f5f61636d652d6368616c6c656e6765c00c00\
        1000fe0000000000080776616c75652d31";

    #[test]
    fn messages_are_those_of_another_implementation() {
        let key = TsigKey::parse(KEY).expect("a key");
        let (zone, name) = ("example.com", "_acme-challenge.Example.com.");
        let message = write_change(0x1234, zone, name, "value-1", RecordChange::Add).expect("valid");
        let signed = sign_message(message, &key, 1_700_000_000);
        let theirs = hex(REQUEST);
        // Their names are compressed, so that only the signature can be equal: 81 bytes.
        let mut unsigned = theirs.get(..theirs.len() - 81).expect("longer").to_vec();
        unsigned[11] = 0;
        assert_eq!(sign_message(unsigned, &key, 1_700_000_000).bytes, theirs);
        let removal = write_change(0x1234, zone, name, "value-1", RecordChange::Remove).expect("valid");
        assert_eq!(removal.get(..12), hex(DELETION).get(..12));
        assert_eq!(judge_outcome(&hex(RESPONSE), 0x1234, Some((&key, &mac(&theirs)))), Some(Ok(())));
        let mut forged = hex(RESPONSE);
        forged[3] ^= 1;
        assert_eq!(judge_outcome(&forged, 0x1234, Some((&key, &mac(&theirs)))), None);
        assert_eq!(judge_outcome(&hex(RESPONSE), 0x1235, Some((&key, &mac(&theirs)))), None);
        assert_eq!(judge_outcome(&hex(RESPONSE), 0x1234, Some((&key, &signed.code[1..]))), None);
        // A success must be signed; a refusal need not be.
        let plain = head(0x1234, RESPONSE_FLAGS, [0; 4]);
        assert_eq!(judge_outcome(&plain, 0x1234, Some((&key, &signed.code))), None);
        assert_eq!(judge_outcome(&plain, 0x1234, None), Some(Ok(())));
        let refused = head(0x1234, RESPONSE_FLAGS | 5, [0; 4]);
        assert!(judge_outcome(&refused, 0x1234, Some((&key, &signed.code))).is_some_and(|said| said.is_err()));
    }

    const RESPONSE_FLAGS: u16 = super::RESPONSE | UPDATE;

    /// The code of a signed message with HMAC-SHA256.
    fn mac(message: &[u8]) -> Vec<u8> {
        message[message.len() - 38..message.len() - 6].to_vec()
    }

    #[test]
    fn zones_are_found() {
        let name = "_acme-challenge.a.example.com";
        let question = zone_question(7, name).expect("valid");
        let mut response = question.clone();
        response[2] = 0x84;
        response[3] = 3;
        response[9] = 1;
        // The owner is compressed: "example.com" begins behind two labels of the question.
        response.extend_from_slice(&[0xc0, 12 + 16 + 2, 0, 6, 0, 1, 0, 0, 0, 60, 0, 0]);
        assert_eq!(zone_of(&response, 7, name), Some(Ok("example.com".into())));
        assert!(zone_of(&response, 7, "_acme-challenge.other.org").is_some_and(|found| found.is_err()));
        assert_eq!(zone_of(&response, 8, name), None);
        for cut in 0..response.len() {
            assert_eq!(zone_of(&response[..cut], 7, name), None, "{cut}");
        }
        // A name that points to itself.
        let at = question.len();
        response[at + 1] = u8::try_from(at).expect("short");
        assert_eq!(zone_of(&response, 7, name), None);
    }

    #[test]
    fn keys_are_read() {
        for wrong in
            ["", "key a { algorithm hmac-md5; secret \"AA==\"; };", "key a { algorithm hmac-sha256; secret \"?\"; };"]
        {
            assert!(TsigKey::parse(wrong).is_err(), "{wrong}");
        }
        let names = ["", "a..b", &"a".repeat(64), &"a.".repeat(200)];
        assert!(names.iter().all(|name| name_bytes(name).is_none()));
    }
}
