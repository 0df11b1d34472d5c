//! Templates of paths, headers and bodies: `{{seq}}`, `{{rand:1:100}}`, `{{pick:a|b|c}}`, `{{hex:16}}`,
//! `{{walk:1000:0.25}}`, `{{var:token}}`; `{{lbrace}}` is the text `{{`, and `{{dollar}}` the text `$`.

use figures::rng::Rng;

use super::session::SessionVariables;

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(Vec<u8>),
    /// Counter over all requests of a world; worlds interleave.
    Sequence,
    Range(u64, u64),
    Pick(Vec<Vec<u8>>),
    Hex(usize),
    /// Files in sequence, of a tree with a directory per digit but the last (`/0/4/2`); the share of requests that move
    /// on (httperf's working set).
    Walk(u64, f64),
    Variable(String),
    /// Column of the user's row of data; escaped for a path.
    Column {
        index: usize,
        is_path: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct RequestTemplate {
    pieces: Vec<Piece>,
}

impl RequestTemplate {
    /// Compiles a text. Fails on an unknown or incomplete placeholder.
    pub fn parse(text: &str) -> Result<RequestTemplate, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(start) = rest.find("{{") {
            let end = rest[start..].find("}}").ok_or_else(|| format!("`{{{{` without `}}}}` in `{text}`"))? + start;
            push_text(&mut pieces, &rest[..start]);
            match rest[start + 2..end].trim() {
                "lbrace" => push_text(&mut pieces, "{{"),
                "dollar" => push_text(&mut pieces, "$"),
                name => pieces.push(placeholder(name)?),
            }
            rest = &rest[end + 2..];
        }
        push_text(&mut pieces, rest);
        Ok(RequestTemplate { pieces })
    }

    pub fn verbatim(bytes: &[u8]) -> RequestTemplate {
        RequestTemplate { pieces: vec![Piece::Text(bytes.to_vec())] }
    }

    pub fn constant(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(&[]),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| if let Piece::Variable(name) = p { Some(name.as_str()) } else { None })
    }

    /// Tells whether values of a session or of data are filled in.
    pub fn has_variables(&self) -> bool {
        self.pieces.iter().any(|p| matches!(p, Piece::Variable(_) | Piece::Column { .. }))
    }

    /// Appends one filling; `sequence` fills `{{seq}}`.
    pub fn fill(&self, sequence: u64, variables: &SessionVariables, rng: &mut Rng, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Sequence => out.extend_from_slice(sequence.to_string().as_bytes()),
                Piece::Range(low, high) => {
                    let value = low + rng.below((high - low).saturating_add(1));
                    out.extend_from_slice(value.to_string().as_bytes());
                }
                Piece::Pick(choices) => {
                    out.extend_from_slice(&choices[rng.below(choices.len() as u64) as usize]);
                }
                Piece::Walk(files, share) => walk((sequence as f64 * share) as u64 % files, *files, out),
                Piece::Variable(name) => out.extend_from_slice(variables.get(name)),
                Piece::Column { index, is_path: false } => out.extend_from_slice(variables.column(*index)),
                Piece::Column { index, is_path: true } => escape_path(variables.column(*index), out),
                Piece::Hex(digits) => {
                    out.extend((0..*digits).map(|_| b"0123456789abcdef"[rng.below(16) as usize]));
                }
            }
        }
    }
}

/// Appends a value with the octets escaped that no request target may contain (RFC 3986, 2.1).
fn escape_path(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'Z' | b'a'..=b'z' | b'[' | b']' | b'_' | b'~' if *byte != b'#' => {
                out.push(*byte);
            }
            other => out.extend_from_slice(format!("%{other:02X}").as_bytes()),
        }
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Text(before)) => before.extend_from_slice(text.as_bytes()),
        _ => pieces.push(Piece::Text(text.into())),
    }
}

fn walk(number: u64, files: u64, out: &mut Vec<u8>) {
    let (mut digit, last) = (1, files - 1);
    while digit <= last / 10 {
        digit *= 10;
    }
    while last > 0 && digit > 0 {
        out.extend_from_slice(&[b'/', b'0' + (number / digit % 10) as u8]);
        digit /= 10;
    }
}

fn placeholder(text: &str) -> Result<Piece, String> {
    let unknown = || {
        format!(
            "`{{{{{text}}}}}` is not one of {{{{seq}}}}, {{{{rand:1:100}}}}, {{{{pick:a|b}}}}, {{{{hex:16}}}}, {{{{walk:1000:0.25}}}}, \
             {{{{var:name}}}}"
        )
    };
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    match name {
        "seq" if rest.is_empty() => Ok(Piece::Sequence),
        "rand" => {
            let (low, high) = rest.split_once(':').ok_or_else(unknown)?;
            let (low, high) = (low.trim().parse().map_err(|_| unknown())?, high.trim().parse().map_err(|_| unknown())?);
            if low <= high { Ok(Piece::Range(low, high)) } else { Err(unknown()) }
        }
        "pick" if !rest.is_empty() => Ok(Piece::Pick(rest.split('|').map(|c| c.as_bytes().to_vec()).collect())),
        "var" if !rest.is_empty() && rest.chars().all(|c| c.is_alphanumeric() || c == '_') => {
            Ok(Piece::Variable(rest.into()))
        }
        // Written by `bench::data` for `${name}`.
        "column" | "path-column" => {
            // The name behind the index is for reports.
            let index = rest.split(':').next().unwrap_or_default().parse().map_err(|_| unknown())?;
            Ok(Piece::Column { index, is_path: name == "path-column" })
        }
        "walk" => {
            let (files, share) = rest.split_once(':').ok_or_else(unknown)?;
            match (files.trim().parse(), share.trim().parse()) {
                (Ok(files @ 1..), Ok(share)) if (0.0..=1.0).contains(&share) => Ok(Piece::Walk(files, share)),
                _ => Err(unknown()),
            }
        }
        "hex" => match rest.parse() {
            Ok(digits @ 1..=1024) => Ok(Piece::Hex(digits)),
            _ => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str, sequence: u64) -> String {
        let mut out = Vec::new();
        RequestTemplate::parse(text).unwrap().fill(sequence, &SessionVariables::default(), &mut Rng::new(1), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn braces_can_be_written() {
        assert_eq!(fill("a{{lbrace}}b}}{{seq}}", 7), "a{{b}}7");
        assert_eq!(fill("{{dollar}}{a} {{dollar}}{{lbrace}}b}}", 7), "${a} ${{b}}");
        assert_eq!(RequestTemplate::parse("{{lbrace}}x}}").unwrap().constant(), Some(&b"{{x}}"[..]));
    }

    #[test]
    fn placeholders_are_filled() {
        assert_eq!(fill("/item/{{seq}}?x", 42), "/item/42?x");
        let n: u64 = fill("{{rand:5:9}}", 0).parse().unwrap();
        assert!((5..=9).contains(&n));
        assert!(["a", "bc"].contains(&fill("{{pick:a|bc}}", 0).as_str()));
        assert_eq!(fill("{{ hex:16 }}", 0).len(), 16);
        assert_eq!(RequestTemplate::parse("/plain").unwrap().constant(), Some(&b"/plain"[..]));
        assert_eq!(RequestTemplate::parse("{{seq}}").unwrap().constant(), None);
    }

    #[test]
    fn a_working_set_is_walked_through_as_httperf_does() {
        // httperf's manual: file 103 of 1024, in a tree of ten entries per directory.
        assert_eq!(fill("{{walk:1024:1}}.html", 103), "/0/1/0/3.html");
        assert_eq!(fill("{{walk:1024:1}}", 1024 + 7), "/0/0/0/7");
        let quarter: Vec<String> = (0..9).map(|i| fill("{{walk:100:0.25}}", i)).collect();
        assert_eq!(quarter, ["/0/0", "/0/0", "/0/0", "/0/0", "/0/1", "/0/1", "/0/1", "/0/1", "/0/2"]);
        assert_eq!(fill("{{walk:10:1}} {{walk:11:1}} {{walk:1:1}}", 9), "/9 /0/9 ");
        assert_eq!(fill("{{walk:1000000:0}}", 9), "/0/0/0/0/0/0");
    }

    #[test]
    fn mistakes_are_named() {
        for bad in [
            "{{",
            "{{nope}}",
            "{{rand:9:1}}",
            "{{hex:0}}",
            "{{pick:}}",
            "{{rand:1}}",
            "{{var:}}",
            "{{var:a b}}",
            "{{walk:9}}",
            "{{walk:0:1}}",
            "{{walk:9:2}}",
        ] {
            assert!(RequestTemplate::parse(bad).is_err(), "{bad}");
        }
    }
}
