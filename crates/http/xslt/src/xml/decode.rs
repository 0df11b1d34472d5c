//! Encodings of documents: detection by mark and declaration (XML 1.0, appendix F), decoding and line ends.

/// Decoded text with line ends normalized, or libxml2's code and message.
pub fn decode_document(bytes: &[u8]) -> Result<String, (u32, String)> {
    let text = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest)?,
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [b'<', 0, _, 0, ..] => utf16(bytes, u16::from_le_bytes),
        [0, b'<', 0, _, ..] => utf16(bytes, u16::from_be_bytes),
        _ => match declared(bytes) {
            None => utf8(bytes)?,
            Some(label) => with_label(bytes, &label)?,
        },
    };
    Ok(match text.contains('\r') {
        true => text.replace("\r\n", "\n").replace('\r', "\n"),
        false => text,
    })
}

fn utf8(bytes: &[u8]) -> Result<String, (u32, String)> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(error) => {
            let shown: Vec<String> =
                bytes.iter().skip(error.valid_up_to()).take(4).map(|byte| format!("0x{byte:02X}")).collect();
            let text = format!("Input is not proper UTF-8, indicate encoding !\nBytes: {}", shown.join(" "));
            Err((81, text))
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, _) = bytes.as_chunks::<2>();
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// The encoding of an XML or text declaration.
fn declared(bytes: &[u8]) -> Option<String> {
    let head = bytes.get(..bytes.len().min(256))?;
    let head = head.strip_prefix(b"<?xml")?;
    let end = head.windows(2).position(|pair| pair == b"?>")?;
    let head = String::from_utf8_lossy(head.get(..end)?).into_owned();
    let (_, rest) = head.split_once("encoding")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest.get(1..)?.split_once(quote).map(|(label, _)| label.to_string())
}

fn with_label(bytes: &[u8], label: &str) -> Result<String, (u32, String)> {
    match label.to_ascii_uppercase().as_str() {
        // UTF-16 in a declaration that was read as bytes is ignored.
        "UTF-8" | "UTF8" | "UTF-16" | "UTF16" => utf8(bytes),
        "ISO-8859-1" | "ISO-LATIN-1" | "ISO LATIN 1" | "LATIN1" => Ok(bytes.iter().map(|byte| *byte as char).collect()),
        "ASCII" | "US-ASCII" => match bytes.iter().all(u8::is_ascii) {
            true => utf8(bytes),
            false => Err((6003, "input conversion failed due to input error".into())),
        },
        _ => {
            let Some(encoding) = encoding_rs::Encoding::for_label(label.as_bytes()) else {
                return Err((32, format!("Unsupported encoding {label}")));
            };
            match encoding.decode_without_bom_handling_and_without_replacement(bytes) {
                Some(text) => Ok(text.into_owned()),
                None => Err((6003, "input conversion failed due to input error".into())),
            }
        }
    }
}
