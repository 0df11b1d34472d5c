//! Corpora of the fuzz targets as text: each line of `fuzz/corpora/TARGET.txt` is an input, in which bytes other than printable ASCII
//! are escaped as in a byte string of Rust. Text makes a changed corpus readable in a review.

use std::path::PathBuf;

/// Returns the folder of the text files.
#[must_use]
pub fn corpora_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpora")
}

/// Prints inputs, shortest first: small inputs start a run of libFuzzer.
#[must_use]
pub fn print_inputs(inputs: &[Vec<u8>]) -> String {
    let mut sorted: Vec<&Vec<u8>> = inputs.iter().collect();
    sorted.sort_by_key(|input| (input.len(), *input));
    sorted.into_iter().map(|input| format!("{}\n", input.escape_ascii())).collect()
}

/// Parses a text file.
///
/// # Errors
/// The number of a line that contains an unknown or an incomplete escape sequence.
pub fn parse_inputs(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| unescape(line).ok_or(format!("line {}: invalid escape sequence", at + 1))).collect()
}

/// Reverses `<[u8]>::escape_ascii`.
fn unescape(line: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next()? {
            b't' => b'\t',
            b'r' => b'\r',
            b'n' => b'\n',
            quoted @ (b'\\' | b'\'' | b'"') => quoted,
            b'x' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_printed_and_parsed() {
        let all: Vec<u8> = (0..=255).collect();
        let inputs = [b"GET / HTTP/1.1\r\n\r\n".to_vec(), Vec::new(), all];
        let text = print_inputs(&inputs);
        assert!(text.bytes().all(|byte| byte == b'\n' || byte.is_ascii_graphic() || byte == b' '), "{text}");
        let parsed = parse_inputs(&text).expect("printed");
        assert_eq!(parsed, [inputs[1].clone(), inputs[0].clone(), inputs[2].clone()]);
    }

    #[test]
    fn invalid_lines_are_errors() {
        for (text, line) in [("a\n\\q\n", 2), ("\\x1", 1), ("\\", 1), ("\\xgg", 1)] {
            assert_eq!(parse_inputs(text), Err(format!("line {line}: invalid escape sequence")), "{text}");
        }
    }
}
