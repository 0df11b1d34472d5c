//! Writes RSA keys as DER (RFC 8017, A.1; RFC 5208), the form that aws-lc-rs reads.

/// INTEGER of an unsigned big-endian number.
fn integer(number: &[u8], out: &mut Vec<u8>) {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let number = number.get(first..).unwrap_or_default();
    let mut content = Vec::with_capacity(number.len() + 1);
    if number.first().is_none_or(|byte| *byte & 0x80 != 0) {
        content.push(0);
    }
    content.extend_from_slice(number);
    element(0x02, &content, out);
}

fn element(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        out.push(0x80 | (bytes.len() - first) as u8);
        out.extend_from_slice(bytes.get(first..).unwrap_or_default());
    }
    out.extend_from_slice(content);
}

fn integers(numbers: &[&[u8]]) -> Vec<u8> {
    let mut content = Vec::new();
    for number in numbers {
        integer(number, &mut content);
    }
    let mut out = Vec::new();
    element(0x30, &content, &mut out);
    out
}

/// RSAPublicKey.
pub fn rsa_public(n: &[u8], e: &[u8]) -> Vec<u8> {
    integers(&[n, e])
}

/// PrivateKeyInfo of an RSAPrivateKey; `numbers` are n, e, d, p, q, dp, dq and qi.
pub fn rsa_private(numbers: [&[u8]; 8]) -> Vec<u8> {
    const RSA_ENCRYPTION: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    let [n, e, d, p, q, dp, dq, qi] = numbers;
    let key = integers(&[&[], n, e, d, p, q, dp, dq, qi]);
    let mut content = Vec::new();
    integer(&[], &mut content);
    element(0x30, RSA_ENCRYPTION, &mut content);
    element(0x04, &key, &mut content);
    let mut out = Vec::new();
    element(0x30, &content, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_minimal_and_positive() {
        let der = |number: &[u8]| {
            let mut out = Vec::new();
            integer(number, &mut out);
            out
        };
        assert_eq!(der(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(der(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(der(&[]), [2, 1, 0]);
        assert_eq!(der(&[1; 200])[..4], [2, 0x81, 200, 1]);
        assert_eq!(der(&[1; 300])[..5], [2, 0x82, 1, 44, 1]);
    }
}
