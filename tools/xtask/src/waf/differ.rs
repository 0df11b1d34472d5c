//! `cargo xtask waf --differ PROGRAM`: transformations and operators on random values, beside another engine.

use ::waf::{NoFiles, Transformation, evaluate_operator};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::Random;

/// Values for each transformation and operator, unless `--count` says otherwise.
pub const VALUES: u64 = 10_000;
/// Differences that are shown of each.
const SHOWN: usize = 3;

/// Operators with their parameters; the values are made for them.
const OPERATORS: &[&str] = &[
    "@beginsWith ../",
    "@contains select",
    "@containsWord or",
    "@detectSQLi",
    "@detectXSS",
    "@endsWith ;",
    "@eq 5",
    "@ge 5",
    "@gt 5",
    "@le 5",
    "@lt 5",
    "@pm union select <script",
    "@rx (?i)<[a-z/!]|(?:union|or)\\s+\\d",
    "@streq select",
    "@strmatch union",
    "@validateByteRange 9,10,13,32-126,128-255",
    "@validateUrlEncoding",
    "@validateUtf8Encoding",
    "@within GET,POST,select",
];

/// Differences from libmodsecurity 3.0.9 that are meant, with their reason. They do not fail the comparison.
const MEANT: &[(&str, &str)] = &[
    ("@detectSQLi", "the port of libinjection misses some values with NUL bytes, which CRS removes before"),
    ("@detectXSS", "the port of libinjection misses some names behind NUL bytes, which CRS removes before"),
    ("base64Decode", "a value that is invalid from some byte on is decoded up to there, not emptied"),
    ("base64DecodeExt", "a value that is invalid from some byte on is decoded up to there, not emptied"),
    ("cmdLine", "libmodsecurity's function that makes transformations by name does not know this name"),
    ("cssDecode", "libmodsecurity ends the value at a NUL byte"),
    ("htmlEntityDecode", "newer versions compare the beginning of a name, as here"),
    ("normalisePath", "libmodsecurity takes a name that ends in two dots for a parent folder"),
    ("normalisePathWin", "libmodsecurity takes a name that ends in two dots for a parent folder"),
    ("normalizePath", "libmodsecurity takes a name that ends in two dots for a parent folder"),
    ("normalizePathWin", "libmodsecurity takes a name that ends in two dots for a parent folder"),
    ("removeComments", "libmodsecurity adds a NUL byte"),
    ("sqlHexDecode", "libmodsecurity drops the last byte"),
    ("utf8toUnicode", "invalid sequences stay as they are"),
];

/// Pieces of values: what transformations and operators look for.
const PIECES: &[&[u8]] = &[
    b"%",
    b"%41",
    b"%u",
    b"%u0041",
    b"%uff1c",
    b"%2f",
    b"%00",
    b"\\",
    b"\\x",
    b"\\x41",
    b"\\u0041",
    b"\\101",
    b"\\n",
    b"\\",
    b"&#",
    b"&#x3c;",
    b"&#60",
    b"&lt;",
    b"&quot",
    b"&nbsp;",
    b"&",
    b";",
    b"/*",
    b"*/",
    b"--",
    b"#",
    b"<!--",
    b"-->",
    b"/",
    b"//",
    b"/./",
    b"/../",
    b"..",
    b"\\..\\",
    b"0x",
    b"0x4142",
    b"^",
    b"\"",
    b"'",
    b",",
    b" ",
    b"  ",
    b"\t",
    b"\n",
    b"\r",
    b"\x0b",
    b"\x00",
    b"+",
    b"=",
    b"QUJD",
    b"QQ==",
    b"a",
    b"b",
    b"f",
    b"A",
    b"Z",
    b"0",
    b"5",
    b"7",
    b"9",
    b"-3",
    b"union",
    b"select",
    b"or 1",
    b"1=1",
    b"<script",
    b"<a href=",
    b"onload=",
    b"javascript:",
    b"GET",
    b"POST",
    b"\xc3\xa9",
    b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\x80",
    b"\xa0",
    b"\xff",
];

/// The options of a comparison.
pub struct DifferOptions<'a> {
    /// Reads lines `NAME<TAB>HEX` and writes the result in the same order: of a transformation the bytes in hexadecimal digits, of
    /// `@operator parameter` 1 or 0.
    pub program: &'a Path,
    pub seed: u64,
    pub count: u64,
    /// Only names that begin so.
    pub only: &'a str,
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn random_value(random: &mut Random) -> Vec<u8> {
    let mut value = Vec::new();
    for _ in 0..random.below(12_usize) {
        match random.chance(15) {
            true => value.push(random.octet()),
            false => value.extend_from_slice(PIECES.get(random.below(PIECES.len())).copied().unwrap_or_default()),
        }
    }
    value
}

/// The engine's result as the other program writes it.
fn own_result(name: &str, value: &[u8]) -> Result<String, String> {
    if let Some(operator) = name.strip_prefix('@') {
        let (operator, parameter) = operator.split_once(' ').unwrap_or((operator, ""));
        return evaluate_operator(operator, parameter, value, &NoFiles).map(|found| u8::from(found).to_string());
    }
    let transformation = Transformation::named(name).ok_or_else(|| format!("t:{name} does not exist"))?;
    Ok(hex_text(&transformation.apply(value, None).unwrap_or_else(|| value.to_vec())))
}

/// Compares results. Prints the number of values by name, and the first differences of each.
///
/// # Errors
/// The other program cannot be run, or there are differences without a known reason.
pub fn compare_engines(options: &DifferOptions<'_>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", options.program.display());
    let mut child =
        Command::new(options.program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the program has no standard streams".into());
    };
    let names: Vec<String> =
        Transformation::names().map(str::to_string).chain(OPERATORS.iter().map(|name| name.to_string())).collect();
    let names: Vec<String> = names.into_iter().filter(|name| name.starts_with(options.only)).collect();
    let mut random = Random::new(options.seed);
    let values: Vec<Vec<u8>> = (0..options.count).map(|_| random_value(&mut random)).collect();
    let (sent_names, sent_values) = (names.clone(), values.clone());
    let writer = std::thread::spawn(move || {
        for name in &sent_names {
            for value in &sent_values {
                if writeln!(input, "{name}\t{}", hex_text(value)).is_err() {
                    return;
                }
            }
        }
    });
    let mut results = BufReader::new(output).lines();
    let mut differences: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in &names {
        for value in &values {
            let other = results.next().ok_or("the program ended early")?.map_err(failed)?;
            let own = own_result(name, value)?;
            if own != other {
                let shown = format!("{} is {own} here and {other} there", value.escape_ascii());
                differences.entry(name).or_default().push(shown);
            }
        }
    }
    writer.join().map_err(|_| "the writer panicked")?;
    let _ = child.wait();
    println!("{} transformations and operators, {} values each", names.len(), options.count);
    let mut unmeant = 0;
    for (name, found) in &differences {
        let reason = MEANT.iter().find(|(known, _)| known == name).map(|(_, reason)| *reason);
        println!("{name}: {} differ{}", found.len(), reason.map_or(String::new(), |reason| format!(": {reason}")));
        found.iter().take(SHOWN).for_each(|line| println!("  {line}"));
        unmeant += usize::from(reason.is_none());
    }
    if unmeant == 0 { Ok(()) } else { Err(format!("{unmeant} of them differ without a known reason")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_result_for_every_random_value() {
        let mut random = Random::new(3);
        for _ in 0..50 {
            let value = random_value(&mut random);
            for name in Transformation::names().chain(OPERATORS.iter().copied()) {
                let result = own_result(name, &value).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(result.len().is_multiple_of(2) || ["0", "1"].contains(&result.as_str()), "{name}: {result}");
            }
        }
    }
}
