//! `Content-Disposition` of a part (RFC 7578, section 4.2), with the quirks of browsers that ModSecurity knows.

use super::{MultipartFlags, OpenPart, trim_start};

/// A token character (RFC 2616, section 2.2).
fn is_token(byte: u8) -> bool {
    (33..127).contains(&byte) && !b"()<>@,;:\\\"/[]?=".contains(&byte)
}

/// Reads `form-data; name="..."; filename="..."`. Fails with ModSecurity's number of the error.
pub(super) fn parse_disposition(
    header: &[u8],
    part: &mut OpenPart,
    flags: &mut MultipartFlags,
    names: &mut Vec<Vec<u8>>,
    filenames: &mut Vec<Vec<u8>>,
) -> Result<(), i32> {
    let mut rest = trim_start(header.strip_prefix(b"form-data").ok_or(-1)?);
    if rest.is_empty() {
        return Ok(());
    }
    rest = rest.strip_prefix(b";").ok_or(-2)?;
    let mut extended: Option<Vec<u8>> = None;
    while !rest.is_empty() {
        rest = trim_start(rest);
        if rest.is_empty() {
            return Err(-3);
        }
        let end = rest.iter().position(|byte| matches!(byte, b'=' | b' ' | b'\t')).ok_or(-4)?;
        let (name, behind) = rest.split_at(end);
        let behind = trim_start(behind);
        if behind.is_empty() {
            return Err(-5);
        }
        rest = trim_start(behind.strip_prefix(b"=").ok_or(-13)?);
        let first = *rest.first().ok_or(-6)?;
        let mut quote = None;
        let value;
        if name == b"filename*" {
            (value, rest) = extended_value(rest)?;
        } else if matches!(first, b'"' | b'\'') {
            quote = Some(first);
            flags.invalid_quoting |= first == b'\'';
            (value, rest) = quoted_value(rest, first)?;
        } else {
            let length = rest.iter().take_while(|byte| is_token(**byte)).count();
            let (token, behind) = rest.split_at(length);
            value = token.to_vec();
            rest = behind;
        }
        if matches!(name, b"name" | b"filename") && quote != Some(b'"') && value.contains(&b'\'') {
            flags.invalid_quoting = true;
        }
        match name {
            b"name" => {
                names.push(value.clone());
                if !part.name.is_empty() {
                    return Err(-14);
                }
                part.name = value;
            }
            b"filename" => {
                filenames.push(value.clone());
                if !part.filename.is_empty() {
                    return Err(-15);
                }
                part.filename = value;
            }
            b"filename*" => match extended.replace(value) {
                Some(before) if !before.is_empty() => return Err(-20),
                _ => {}
            },
            _ => return Err(-11),
        }
        let before = rest;
        rest = trim_start(rest);
        match rest.split_first() {
            None => {}
            Some((b';', behind)) => rest = behind,
            Some(_) => {
                flags.invalid_quoting |= before.len() == rest.len() && quote.is_some();
                return Err(-12);
            }
        }
    }
    match extended {
        Some(value) if !value.is_empty() && part.filename.is_empty() => Err(-21),
        _ => Ok(()),
    }
}

/// The value within quotes and the rest behind them.
fn quoted_value(text: &[u8], quote: u8) -> Result<(Vec<u8>, &[u8]), i32> {
    let mut rest = text.get(1..).unwrap_or_default();
    if rest.is_empty() {
        return Err(-7);
    }
    let mut value = Vec::new();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == quote {
            break;
        }
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        // Other characters are no escapes: Internet Explorer sends paths of Windows.
        let next = *rest.first().ok_or(-8)?;
        if next == quote || next == b'\\' {
            value.push(next);
            rest = rest.get(1..).unwrap_or_default();
        } else {
            value.push(b'\\');
        }
    }
    Ok((value, rest))
}

/// The value of `charset'language'text` (RFC 5987) as written, and the rest behind it.
fn extended_value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), i32> {
    let charset = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&+-^_`{}~".contains(byte);
    let length = text.iter().take_while(|byte| charset(byte)).count();
    let rest = text.get(length..).unwrap_or_default();
    let rest = rest.strip_prefix(b"'").filter(|_| length > 0).ok_or(-16)?;
    let language = memchr::memchr(b'\'', rest).ok_or(-17)?;
    let start = rest.get(language + 1..).unwrap_or_default();
    let mut at = 0;
    while let Some(&byte) = start.get(at).filter(|byte| **byte != b';') {
        if byte == b'%' {
            crate::transform::hex_pair(start, at + 1).ok_or(-18)?;
            at += 3;
        } else if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            at += 1;
        } else {
            return Err(-19);
        }
    }
    let (value, rest) = start.split_at(at.min(start.len()));
    Ok((value.to_vec(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name and the name of the file, or the number of the error.
    fn read(header: &str) -> Result<(String, String), i32> {
        let (mut part, mut flags) = (OpenPart::default(), MultipartFlags::default());
        parse_disposition(header.as_bytes(), &mut part, &mut flags, &mut Vec::new(), &mut Vec::new())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&part.name), text(&part.filename)))
    }

    #[test]
    fn names_are_read_with_and_without_quotes() {
        let names = |name: &str, file: &str| Ok((name.to_string(), file.to_string()));
        assert_eq!(read("form-data; name=\"a\"; filename=\"C:\\x\\\"y\""), names("a", "C:\\x\"y"));
        assert_eq!(read("form-data; name=a; filename=b.txt"), names("a", "b.txt"));
        assert_eq!(read("form-data; name='a'; filename=\"f\"; filename*=UTF-8''%e2%82%ac"), names("a", "f"));
        assert_eq!(read("form-data"), names("", ""));
    }

    #[test]
    fn faults_have_the_numbers_of_modsecurity() {
        for (header, code) in [
            ("attachment; name=a", -1),
            ("form-data name=a", -2),
            ("form-data; ", -3),
            ("form-data; name", -4),
            ("form-data; name=\"a\"; name=\"b\"", -14),
            ("form-data; name=a; filename=b; filename=c", -15),
            ("form-data; filename*=UTF-8x", -16),
            ("form-data; filename*=UTF-8''%zz", -18),
            ("form-data; size=3", -11),
            ("form-data; name=\"a\" x", -12),
            ("form-data; filename*=UTF-8''a", -21),
        ] {
            assert_eq!(read(header), Err(code), "{header}");
        }
    }
}
