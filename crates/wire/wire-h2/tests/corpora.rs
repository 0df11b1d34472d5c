//! HPACK against header lists that other programs have encoded: the public collection `http2jp/hpack-test-case`, which is not part of this
//! project. `HPACK_TEST_CASES` names a checkout of it:
//!
//! ```text
//! HPACK_TEST_CASES=DIR cargo test -p wire-h2 --test corpora -- --ignored
//! ```

use http_types::ListLimits;
use serde_json::Value;
use std::path::{Path, PathBuf};
use wire_h2::hpack::{Decoder, Encoder};

const LIMITS: ListLimits = ListLimits { bytes_max: 1 << 20, fields_max: 10_000, field_max: 1 << 18 };

fn stories(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            stories(&path, out);
        } else if path.extension().is_some_and(|e| e == "json") {
            out.push(path);
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex")).collect()
}

#[test]
#[ignore = "needs a checkout of the collection: HPACK_TEST_CASES=DIR"]
fn lists_of_other_encoders_are_read_and_ours_are_read_back() {
    let folder = std::env::var("HPACK_TEST_CASES").expect("HPACK_TEST_CASES names a checkout");
    let mut paths = Vec::new();
    stories(Path::new(&folder), &mut paths);
    let (mut blocks, mut own) = (0, 0);
    for path in &paths {
        let story: Value = serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON");
        let cases = story["cases"].as_array().expect("cases");
        let (mut decoder, mut encoder, mut reader) = (Decoder::default(), Encoder::default(), Decoder::default());
        // Encoders that change the table's size were told so by settings that are not ours.
        let largest = cases.iter().filter_map(|case| case["header_table_size"].as_u64()).max();
        if largest.is_some_and(|size| size > 4096) {
            continue;
        }
        for case in cases {
            let wanted: Vec<(String, String)> = case["headers"]
                .as_array()
                .expect("headers")
                .iter()
                .flat_map(|field| field.as_object().expect("a field"))
                .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_string()))
                .collect();
            let read = |decoder: &mut Decoder, block: &[u8]| -> Vec<(String, String)> {
                let list = decoder.decode(block, &LIMITS).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                list.iter().map(|(name, value)| (text(name), text(value))).collect()
            };
            if let Some(wire) = case["wire"].as_str() {
                assert_eq!(read(&mut decoder, &bytes(wire)), wanted, "{}", path.display());
                blocks += 1;
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &wanted {
                encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            assert_eq!(read(&mut reader, &block), wanted, "ours, {}", path.display());
            own += 1;
        }
    }
    println!("{} stories, {blocks} blocks read, {own} of ours read back", paths.len());
    assert!(blocks > 1000 && own > 1000);
}
