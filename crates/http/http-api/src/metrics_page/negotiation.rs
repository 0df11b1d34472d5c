//! Chooses between Prometheus text and OpenMetrics by the request's `Accept` fields (RFC 9110, section 12.5.1).

/// Versions of OpenMetrics whose readers understand version 1.0.0.
const VERSIONS: [&[u8]; 2] = [b"1.0.0", b"0.0.1"];

/// Quality in thousandths; 0 refuses.
type Quality = u16;

/// Tells whether the client prefers OpenMetrics: it names the type, and no quality of plain text is higher. Wildcards
/// alone get plain text, which every reader understands.
pub fn prefers_openmetrics<'a>(accept: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut open, mut plain, mut wildcard) = (None::<Quality>, None::<Quality>, None::<Quality>);
    for range in accept.flat_map(|value| value.split(|c| *c == b',')) {
        let mut parts = range.split(|c| *c == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let Some((quality, version)) = parameters(parts) else { continue };
        let place = match name.as_slice() {
            b"application/openmetrics-text" if version.is_none_or(|version| VERSIONS.contains(&version)) => &mut open,
            b"text/plain" if version.is_none_or(|version| version == b"0.0.4") => &mut plain,
            b"text/*" | b"*/*" => &mut wildcard,
            _ => continue,
        };
        *place = Some(place.unwrap_or(0).max(quality));
    }
    open.is_some_and(|open| open > 0 && open >= plain.or(wildcard).unwrap_or(0))
}

/// Parses the parameters of a media range: its quality and `version`. `None`: a quality is malformed.
fn parameters<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Option<(Quality, Option<&'a [u8]>)> {
    let (mut quality_, mut version) = (1000, None);
    for part in parts {
        let Some(at) = part.iter().position(|c| *c == b'=') else { continue };
        let (name, value) = (part.get(..at)?.trim_ascii(), part.get(at + 1..)?.trim_ascii());
        if name.eq_ignore_ascii_case(b"q") {
            quality_ = quality(value)?;
        } else if name.eq_ignore_ascii_case(b"version") {
            version = Some(value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value));
        }
    }
    Some((quality_, version))
}

/// 0 to 1 with at most three decimals.
fn quality(text: &[u8]) -> Option<Quality> {
    let (whole, decimals) = match text {
        [whole @ (b'0' | b'1')] => (*whole, &b""[..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = decimals.get(place).copied().unwrap_or(b'0');
        thousandths = thousandths * 10 + Quality::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    match whole {
        b'0' => Some(thousandths),
        _ => (thousandths == 0).then_some(1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualities_choose_the_format() {
        for (text, want) in [
            ("1", Some(1000)),
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.125", Some(125)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.1234", None),
            ("0.x", None),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(quality(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn the_better_format_is_chosen() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, want) in [
            (&[prometheus][..], true),
            (&["application/openmetrics-text"], true),
            (&["Application/OpenMetrics-Text; version=\"1.0.0\""], true),
            (&["application/openmetrics-text; version=2.0.0, text/plain"], false),
            (&["application/openmetrics-text;q=0"], false),
            (&["application/openmetrics-text;q=0.000, */*"], false),
            (&["application/openmetrics-text;q=0.5, text/plain;q=0.9"], false),
            (&["application/openmetrics-text;q=0.5, text/plain;q=0.5"], true),
            (&["application/openmetrics-text;q=0.5, */*"], false),
            (&["application/openmetrics-text;q=0.5, text/plain;q=0.4, */*"], true),
            (&["application/openmetrics-text;q=x"], false),
            (&["text/plain;q=0.2", "application/openmetrics-text;q=0.3"], true),
            (&["*/*"], false),
            (&["application/*"], false),
            (&[""], false),
            (&[], false),
        ] {
            assert_eq!(prefers_openmetrics(accept.iter().map(|value| value.as_bytes())), want, "{accept:?}");
        }
    }
}
