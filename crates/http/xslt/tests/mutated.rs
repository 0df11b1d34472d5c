//! Mutated stylesheets and documents end in time and without a panic: the bodies of the fuzz targets with a seed.

use std::path::Path;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

const PIECES: &[&[u8]] = &[
    b"<",
    b">",
    b"&x;",
    b"&#0;",
    b"]]>",
    b"<!--",
    b"<![CDATA[",
    b"xmlns:a=''",
    b"//",
    b"[1]",
    b"[last()]",
    b"{",
    b"}",
    b"position()",
    b"$x",
    b"xsl:",
    b"select='",
    b"\"",
    b"/..",
    b"*",
    b"|",
    b"@",
    b" and ",
    b"\xff",
    b"\x00",
    b"1 div 0",
];

fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = random.below(256) as u8,
            1 => drop(bytes.drain(at..(at + 1 + random.below(12)).min(bytes.len()))),
            2 => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
            _ => {
                let from = random.below(bytes.len());
                let piece = bytes[from..(from + 1 + random.below(40)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, piece));
            }
        }
    }
    bytes
}

#[test]
fn mutations_end_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sheets");
    let mut seeds: Vec<_> = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    seeds.sort();
    let mut random = Random(7);
    let rounds = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for path in seeds {
        let bytes = std::fs::read(&path).expect("a file");
        for _ in 0..rounds {
            let input = mutated(&bytes, &mut random);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("xsl") => xslt::fuzzing::xslt(&input),
                Some("xml") => xslt::fuzzing::xml(&input),
                _ => {}
            }
        }
    }
}
