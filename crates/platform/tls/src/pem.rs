//! PEM (RFC 7468 and OpenSSL's extensions): blocks, headers of encrypted keys, text between blocks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// UTF-8's mark, which means nothing.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Maximum number of PEM blocks per file.
const BLOCKS_MAX: usize = 4096;

/// A block of a PEM text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemBlock {
    /// Label, such as `CERTIFICATE`.
    pub label: String,
    /// `Proc-Type: 4,ENCRYPTED` and similar.
    pub headers: Vec<(String, String)>,
    /// Decoded content.
    pub bytes: Vec<u8>,
}

impl PemBlock {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// In order. Fails with OpenSSL's name of a fault.
pub fn parse_blocks(text: &[u8]) -> Result<Vec<PemBlock>, &'static str> {
    let text = String::from_utf8_lossy(text);
    let mut all = Vec::new();
    // Editors write a byte order mark at the start of a file, and a concatenation has it before a later block: OpenSSL skips it.
    let mut lines = text.lines().map(|line| line.trim_start_matches(BYTE_ORDER_MARK).trim_end());
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----")) else { continue };
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut body = String::new();
        let end = loop {
            let Some(line) = lines.next() else { return Err("bad end line") };
            if let Some(rest) = line.strip_prefix("-----END ") {
                break rest.strip_suffix("-----").ok_or("bad end line")?;
            }
            match line.split_once(':') {
                Some((name, value)) if body.is_empty() => headers.push((name.to_string(), value.trim().to_string())),
                _ => body.push_str(line.trim()),
            }
        };
        if end != label {
            return Err("bad end line");
        }
        if all.len() == BLOCKS_MAX {
            return Err("too many blocks");
        }
        let bytes = STANDARD.decode(&body).map_err(|_| "bad base64 decode")?;
        all.push(PemBlock { label: label.to_string(), headers, bytes });
    }
    Ok(all)
}

/// Writes a block as OpenSSL, in lines of 64.
pub fn encode_block(label: &str, bytes: &[u8]) -> String {
    let body = STANDARD.encode(bytes);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_text() {
        let text = "subject=x\n-----BEGIN A-----\nAQID\n-----END A-----\nmore\r\n\
                    -----BEGIN B KEY-----\r\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-128-CBC,00\r\n\r\nBAU=\r\n-----END B KEY-----\r\n";
        let all = parse_blocks(text.as_bytes()).expect("blocks");
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].label.as_str(), &all[0].bytes[..]), ("A", &[1, 2, 3][..]));
        assert_eq!(all[1].header("DEK-Info"), Some("AES-128-CBC,00"));
        assert_eq!(all[1].bytes, [4, 5]);
    }

    #[test]
    fn byte_order_marks_are_skipped() {
        let one = "\u{feff}-----BEGIN A-----\r\nAQID\r\n-----END A-----\r\n";
        let two = format!("{one}{one}");
        assert_eq!(parse_blocks(two.as_bytes()).map(|all| all.len()), Ok(2));
        assert_eq!(parse_blocks(one.as_bytes()).expect("a block")[0].bytes, [1, 2, 3]);
    }

    #[test]
    fn broken_blocks_are_refused() {
        for text in [
            "-----BEGIN A-----\nAQID\n",
            "-----BEGIN A-----\nAQID\n-----END B-----\n",
            "-----BEGIN A-----\n!\n-----END A-----\n",
        ] {
            assert!(parse_blocks(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(parse_blocks(b"nothing").expect("none"), []);
    }

    #[test]
    fn written_blocks_are_read() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(parse_blocks(encode_block("X", &bytes).as_bytes()).expect("read")[0].bytes, bytes);
    }
}
