use super::*;
use http_types::{List, ListLimits};

const LIMITS: ListLimits = ListLimits { bytes_max: 8192, fields_max: 100, field_max: 4096 };

fn hex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}

fn list(decoder: &Decoder, section: &[u8]) -> List {
    match decoder.decode(section, &LIMITS) {
        Ok(DecodedSection::List { list, .. }) => list,
        other => panic!("{other:?}"),
    }
}

fn texts(list: &List) -> Vec<(String, String)> {
    list.iter().map(|(n, v)| (String::from_utf8_lossy(n).into(), String::from_utf8_lossy(v).into())).collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.into(), value.into())
}

/// RFC 9204, appendix B.
#[test]
fn the_rfcs_connection() {
    let mut decoder = Decoder::new(220, 4096);
    // B.1: a literal with a name of the static table.
    let section = hex("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(texts(&list(&decoder, &section)), [pair(":path", "/index.html")]);
    // B.2: two insertions, a section with post-base references that comes before them.
    let section = hex("0381 10 11");
    assert!(matches!(decoder.decode(&section, &LIMITS), Ok(DecodedSection::Blocked(2))));
    decoder
        .receive(&hex("3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468"))
        .unwrap();
    assert_eq!((decoder.table_size(), decoder.inserted()), (106, 2));
    assert_eq!(
        texts(&list(&decoder, &section)),
        [pair(":authority", "www.example.com"), pair(":path", "/sample/path")]
    );
    let mut told = Vec::new();
    decoder.acknowledge(4, 2, &mut told);
    assert_eq!(told, hex("84"));
    // B.3: a speculative insertion, acknowledged by its count.
    decoder.receive(&hex("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565")).unwrap();
    assert_eq!((decoder.table_size(), decoder.inserted()), (160, 3));
    // B.4: a duplicate and references relative to the base.
    let section = hex("0500 80 c1 81");
    assert!(matches!(decoder.decode(&section, &LIMITS), Ok(DecodedSection::Blocked(4))));
    decoder.receive(&hex("02")).unwrap();
    assert_eq!((decoder.table_size(), decoder.inserted()), (217, 4));
    assert_eq!(
        texts(&list(&decoder, &section)),
        [pair(":authority", "www.example.com"), pair(":path", "/"), pair("custom-key", "custom-value")]
    );
    told.clear();
    decoder.cancel(8, &mut told);
    decoder.tell_insertions(&mut told);
    decoder.tell_insertions(&mut told);
    // The acknowledgment has told of two of the four.
    assert_eq!(told, hex("48 02"));
    // B.5: an insertion that evicts.
    decoder.receive(&hex("810d 6375 7374 6f6d 2d76 616c 7565 32")).unwrap();
    assert_eq!((decoder.table_size(), decoder.inserted()), (215, 5));
    assert!(matches!(decoder.decode(&hex("0381 10 11"), &LIMITS), Err(Broken::Code(_))), "evicted");
}

#[test]
fn instructions_mean_the_same_however_they_are_cut() {
    let bytes = hex(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d 4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565 01",
    );
    for size in 1..bytes.len() {
        let mut decoder = Decoder::new(220, 4096);
        for piece in bytes.chunks(size) {
            decoder.receive(piece).unwrap();
        }
        assert_eq!((decoder.inserted(), decoder.held()), (3, 0), "pieces of {size}");
    }
}

#[test]
fn broken_sections_and_instructions_are_refused() {
    let mut decoder = Decoder::new(220, 4096);
    decoder.receive(&hex("3fbd01 c001 61")).unwrap();
    for section in [
        "",
        "00",
        "02",
        "0200 81",
        "0300",
        "1000",
        "ff0500",
        "0000 80",
        "0000 ff ff",
        "0000 10",
        "0000 510b 61",
        "0200 10",
        "0281",
        "0000 ff8080808080808080808001",
        "0000 2a ffff 00",
        "0000 51 81 00",
    ] {
        let decoded = decoder.decode(&hex(section), &LIMITS);
        assert!(matches!(decoded, Err(_) | Ok(DecodedSection::Blocked(_))), "{section}: {decoded:?}");
    }
    for instruction in ["3fbe01", "ff4000", "8161", "02", "c07f 8001", "41 61 7f e107"] {
        let mut decoder = decoder.clone();
        let mut bytes = hex(instruction);
        bytes.extend_from_slice(&[b'a'; 2000]);
        assert!(decoder.receive(&bytes).is_err(), "{instruction}");
    }
    // Without a capacity nothing can be inserted.
    assert!(Decoder::new(220, 4096).receive(&hex("c001 61")).is_err());
    assert!(Decoder::new(0, 4096).receive(&hex("21")).is_err());
}

/// An encoder and a decoder with the instructions in flight between them.
#[derive(Default)]
struct Wire {
    encoder: Encoder,
    decoder: Decoder,
}

impl Wire {
    fn new(capacity: u64) -> Wire {
        let mut wire = Wire { encoder: Encoder::default(), decoder: Decoder::new(capacity, 4096) };
        wire.encoder.allow(capacity, 0);
        wire
    }
    fn encode(&mut self, stream: u64, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        self.encoder.section(stream, Some((b":status", b"200")), &mut fields, &mut out);
        out
    }
    fn instructions(&mut self) {
        let bytes = std::mem::take(self.encoder.instructions());
        self.decoder.receive(&bytes).expect("our own instructions");
    }
    fn acknowledge(&mut self) {
        let mut out = Vec::new();
        self.decoder.tell_insertions(&mut out);
        self.encoder.receive(&out).expect("our own acknowledgments");
    }
    /// Decodes a section and acknowledges it.
    fn decode(&mut self, stream: u64, section: &[u8]) -> Vec<(String, String)> {
        let Ok(DecodedSection::List { list, required }) = self.decoder.decode(section, &LIMITS) else {
            panic!("our own section")
        };
        if required > 0 {
            let mut out = Vec::new();
            self.decoder.acknowledge(stream, required, &mut out);
            self.encoder.receive(&out).expect("our own acknowledgment");
        }
        texts(&list)
    }
}

#[test]
fn sections_get_shorter_and_never_block() {
    let mut wire = Wire::new(4096);
    let fields =
        [("server", "tidegate"), ("x-powered-by", "something long"), ("etag", "\"1\""), ("accept-ranges", "bytes")];
    let first = wire.encode(0, &fields);
    assert_eq!(wire.decode(0, &first).len(), 5, "before any instruction has come");
    let second = wire.encode(4, &fields);
    assert_eq!(second.len(), first.len(), "not acknowledged yet");
    wire.instructions();
    wire.acknowledge();
    let third = wire.encode(8, &fields);
    assert!(third.len() < first.len() / 2, "{} {}", third.len(), first.len());
    assert_eq!(wire.encoder.outstanding(), 1);
    assert_eq!(wire.decode(8, &third), wire.decode(0, &first));
    assert_eq!(wire.encoder.outstanding(), 0);
    let fourth = wire.encode(12, &fields);
    assert_eq!(fourth.len(), third.len());
    // A cancellation of stream 12.
    wire.encoder.receive(&[0x4c]).unwrap();
    assert_eq!(wire.encoder.outstanding(), 0);
}

#[test]
fn peers_that_acknowledge_sections_alone_get_references() {
    let mut wire = Wire::new(4096);
    wire.encoder.allow(4096, 1);
    let fields = [("server", "tidegate"), ("x-powered-by", "something long")];
    let sections: Vec<Vec<u8>> = (0..2).map(|n| wire.encode(4 * n, &fields)).collect();
    wire.instructions();
    assert_eq!(sections[0].len(), sections[1].len(), "the entries may still be on their way");
    let third = wire.encode(8, &fields);
    assert!(third.len() < sections[0].len() / 2, "{} {}", third.len(), sections[0].len());
    assert_eq!(wire.encode(12, &fields).len(), sections[0].len(), "one section may wait, and no more");
    assert_eq!(wire.decode(8, &third).len(), 3);
    assert_eq!(wire.encode(16, &fields).len(), third.len(), "acknowledged");
}

#[test]
fn entries_that_sections_refer_to_stay() {
    let mut wire = Wire::new(256);
    let old = [("x-old", "value")];
    wire.encode(0, &old);
    wire.instructions();
    wire.acknowledge();
    // This one is on its way while the table fills.
    let late = wire.encode(4, &old);
    for n in 0..100 {
        let value = format!("value {n}");
        wire.encode(8 + 4 * n, &[("x-new", &value)]);
        wire.instructions();
        wire.acknowledge();
    }
    assert_eq!(wire.decode(4, &late)[1], pair("x-old", "value"));
    // Acknowledged, it makes room.
    for n in 0..10 {
        let value = format!("other {n}");
        wire.encode(1000 + 4 * n, &[("x-new", &value)]);
        wire.instructions();
        wire.acknowledge();
    }
    assert!(wire.decoder.table_size() <= 256);
    let section = wire.encode(2000, &[("x-new", "other 9")]);
    assert_eq!(section.len(), 4, "{section:x?}");
}

#[test]
fn a_peer_that_acknowledges_nothing_is_sent_literals() {
    let mut wire = Wire::new(4096);
    wire.encode(0, &[("x-a", "b")]);
    wire.instructions();
    wire.acknowledge();
    for stream in 1..1000 {
        let section = wire.encode(4 * stream, &[("x-a", "b")]);
        assert!(matches!(wire.decoder.decode(&section, &LIMITS), Ok(DecodedSection::List { .. })));
    }
    assert!(wire.encoder.outstanding() <= 256);
    let mut deaf = Encoder::default();
    deaf.allow(4096, 0);
    for n in 0..100_000u64 {
        let value = n.to_string();
        deaf.section(4 * n, None, &mut [(&b"x"[..], value.as_bytes())].into_iter(), &mut Vec::new());
    }
    assert!(deaf.instructions().len() <= 16 * 1024);
}

#[test]
fn acknowledgments_without_a_reason_are_refused() {
    for bytes in ["84", "01", "00", "3f8080808080808080808001"] {
        assert!(Encoder::default().receive(&hex(bytes)).is_err(), "{bytes}");
    }
    let mut encoder = Encoder::default();
    // Cancellations may come for any stream; an integer may come in pieces.
    encoder.receive(&hex("44 7f")).unwrap();
    encoder.receive(&hex("80")).unwrap();
    encoder.receive(&hex("01")).unwrap();
}

#[test]
fn references_to_a_large_entry_do_not_become_a_gigabyte() {
    let mut decoder = Decoder::new(4096, 4096);
    let mut bytes = Vec::new();
    put_integer(4096, 5, 0x20, &mut bytes);
    put_string(b"a", 5, 0x40, &mut bytes);
    put_integer(4000, 7, 0, &mut bytes);
    bytes.extend_from_slice(&[0xff; 4000]);
    decoder.receive(&bytes).unwrap();
    let mut section = hex("0200");
    section.extend(std::iter::repeat_n(0x80, 100_000));
    let list = list(&decoder, &section);
    assert!(list.too_large && list.arena.len() <= LIMITS.bytes_max);
    // Duplicates share their text.
    for _ in 0..1000 {
        decoder.receive(&[0; 1000]).unwrap();
    }
    assert!(decoder.table_size() <= 4096);
}

#[test]
fn names_of_fields_that_do_not_fit_are_not_copied() {
    let mut decoder = Decoder::new(4096, 4096);
    let mut bytes = Vec::new();
    put_integer(4096, 5, 0x20, &mut bytes);
    put_integer(4000, 5, 0x40, &mut bytes);
    bytes.extend_from_slice(&[b'n'; 4000]);
    put_integer(0, 7, 0, &mut bytes);
    decoder.receive(&bytes).unwrap();
    // Literals of two octets, each with the name of the entry and an empty value.
    let mut section = hex("0200");
    (0..30_000).for_each(|_| section.extend_from_slice(&[0x40, 0]));
    let list = list(&decoder, &section);
    assert!(list.too_large && list.fields.len() == 2, "{}", list.fields.len());
    assert!(list.arena.capacity() <= LIMITS.bytes_max, "{}", list.arena.capacity());
}

#[test]
fn instructions_are_decoded_once_they_are_complete() {
    for first in [0x60, 0xc0] {
        let mut decoder = Decoder::new(4096, 4096);
        decoder.receive(&hex("3fe11f")).unwrap();
        // A name that is no text in Huffman's code, or a name of the static table; a value of this kind, octet by octet.
        let mut bytes = Vec::new();
        if first == 0x60 {
            put_integer(1000, 5, first, &mut bytes);
            bytes.extend_from_slice(&[0xff; 1000]);
        } else {
            bytes.push(first);
        }
        put_integer(1000, 7, 0x80, &mut bytes);
        bytes.extend_from_slice(&[0xff; 1000]);
        let (last, others) = bytes.split_last().unwrap();
        for octet in others {
            decoder.receive(&[*octet]).unwrap();
        }
        assert_eq!(decoder.held(), others.len());
        assert_eq!(decoder.receive(&[*last]), Err("client sent invalid encoded field line"));
    }
}

#[test]
fn lengths_of_fields_are_those_that_were_sent() {
    let limits = ListLimits { field_max: 50, ..LIMITS };
    let too_large = |value: &[u8]| {
        let mut out = Vec::new();
        Encoder::default().section(0, None, &mut [(&b"a"[..], value)].into_iter(), &mut out);
        match Decoder::new(0, 4096).decode(&out, &limits) {
            Ok(DecodedSection::List { list, .. }) => list.too_large,
            Err(Broken::Large(_)) => true,
            other => panic!("{other:?}"),
        }
    };
    assert!(!too_large(&[b'a'; 80]) && too_large(&[b'a'; 81]), "five bits each");
    assert!(!too_large(&[b'X'; 50]) && too_large(&[b'X'; 51]), "eight bits each");
}

/// Random sections over a wire that delivers instructions, acknowledgments and sections late and in random order.
#[test]
fn random_courses_are_read_as_they_were_written() {
    for seed in 1..500u64 {
        let mut state = testkit::Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut next = move |below: u64| state.below(below as usize) as u64;
        let mut wire = Wire::new([0, 64, 200, 4096, 100_000][next(5) as usize]);
        let mut flying: Vec<(u64, Vec<u8>, Vec<(String, String)>)> = Vec::new();
        for step in 0..200u64 {
            match next(4) {
                0 => wire.instructions(),
                1 => wire.acknowledge(),
                2 if !flying.is_empty() => {
                    let at = next(flying.len() as u64) as usize;
                    let (stream, section, wanted) = flying.swap_remove(at);
                    if next(8) == 0 {
                        let mut cancelled = Vec::new();
                        wire.decoder.cancel(stream, &mut cancelled);
                        wire.encoder.receive(&cancelled).unwrap();
                    } else {
                        assert_eq!(wire.decode(stream, &section), wanted, "seed {seed}");
                    }
                }
                _ => {
                    let fields: Vec<(String, String)> =
                        (0..next(6)).map(|_| (format!("x-{}", next(8)), "v".repeat(next(40) as usize))).collect();
                    let lines: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                    let section = wire.encode(4 * step, &lines);
                    let wanted = [vec![pair(":status", "200")], fields].concat();
                    flying.push((4 * step, section, wanted));
                }
            }
        }
    }
}
