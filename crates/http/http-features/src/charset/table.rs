//! Charset tables: bytes to bytes, bytes to UTF-8, and back.

use conf_schema::{Directive, Problem};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq)]
pub enum Recoder {
    Bytes(Box<[u8; 256]>),
    /// UTF-8 of each byte.
    ToUtf8(Vec<Vec<u8>>),
    FromUtf8(HashMap<char, u8>),
}

#[derive(Clone, Default)]
pub struct CharsetMaps(Vec<(Vec<u8>, Vec<u8>, Arc<Recoder>)>);

impl CharsetMaps {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn know(&self, name: &[u8]) -> bool {
        self.0.iter().any(|(from, to, _)| from.eq_ignore_ascii_case(name) || to.eq_ignore_ascii_case(name))
    }
    pub fn find(&self, from: &[u8], to: &[u8]) -> Option<Arc<Recoder>> {
        let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
        self.0.iter().find(|(f, t, _)| same(f, from) && same(t, to)).map(|(_, _, table)| table.clone())
    }
    pub fn add(&mut self, d: &Directive) -> Result<(), Problem> {
        let [first, second] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let (from, to) = (&first.bytes, &second.bytes);
        let (shown_from, shown_to) = (first.text(), second.text());
        if from.eq_ignore_ascii_case(to) {
            return Err(Problem::says(format!(
                "\"charset_map\" between the same charsets \"{shown_from}\" and \"{shown_to}\""
            )));
        }
        if from.eq_ignore_ascii_case(b"utf-8") {
            return Err(Problem::says("\"charset_map\" with \"utf-8\" charset should be given in the second column"));
        }
        if self.find(from, to).is_some() {
            return Err(Problem::says(format!(
                "duplicate \"charset_map\" between \"{shown_from}\" and \"{shown_to}\""
            )));
        }
        let block = d.block.as_deref().unwrap_or_default();
        // As in nginx, the block reads no other file.
        if let Some(line) = conf_syntax::include_of(block) {
            return Err(invalid(line, "include"));
        }
        let lines = conf_syntax::list_directives(block);
        let (there, back) = if to.eq_ignore_ascii_case(b"utf-8") { utf8(&lines)? } else { bytes(&lines)? };
        self.0.push((from.clone(), to.clone(), Arc::new(there)));
        self.0.push((to.clone(), from.clone(), Arc::new(back)));
        Ok(())
    }
}

fn invalid(line: &Directive, text: &str) -> Problem {
    Problem::says(format!("invalid value \"{text}\"")).on(line)
}

/// Two words of a line; the first is a hexadecimal byte.
fn words(line: &Directive) -> Result<(u8, String), Problem> {
    let [value] = line.args.as_slice() else { return Err(Problem::says("invalid parameters number").on(line)) };
    let name = line.name.text();
    let byte = u8::from_str_radix(&name, 16).map_err(|_| invalid(line, &name))?;
    Ok((byte, value.text().into_owned()))
}

fn bytes(lines: &[&Directive]) -> Result<(Recoder, Recoder), Problem> {
    let mut there: Box<[u8; 256]> = Box::new(std::array::from_fn(|i| if i < 128 { i as u8 } else { b'?' }));
    let mut back = there.clone();
    for line in lines {
        let (from, value) = words(line)?;
        let to = u8::from_str_radix(&value, 16).map_err(|_| invalid(line, &value))?;
        for (table, at, byte) in [(&mut there, from, to), (&mut back, to, from)] {
            if let Some(slot) = table.get_mut(usize::from(at)) {
                *slot = byte;
            }
        }
    }
    Ok((Recoder::Bytes(there), Recoder::Bytes(back)))
}

fn utf8(lines: &[&Directive]) -> Result<(Recoder, Recoder), Problem> {
    let mut there: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![if b < 128 { b } else { b'?' }]).collect();
    let mut back: HashMap<char, u8> = (0..128u8).map(|b| (char::from(b), b)).collect();
    for line in lines {
        let (from, value) = words(line)?;
        let wrong = || invalid(line, &value);
        let digits = value.as_bytes();
        if digits.len() % 2 != 0 || digits.len() > 6 {
            return Err(wrong());
        }
        let mut text = Vec::new();
        for pair in digits.chunks(2) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            text.push(u8::from_str_radix(pair, 16).map_err(|_| wrong())?);
        }
        let mut characters = std::str::from_utf8(&text).map_err(|_| wrong())?.chars();
        let (Some(character), None) = (characters.next(), characters.next()) else { return Err(wrong()) };
        back.insert(character, from);
        if let Some(slot) = there.get_mut(usize::from(from)) {
            *slot = text;
        }
    }
    Ok((Recoder::ToUtf8(there), Recoder::FromUtf8(back)))
}

impl Recoder {
    pub fn changes_length(&self) -> bool {
        !matches!(self, Recoder::Bytes(_))
    }
    /// Recodes a piece; `cut` carries an incomplete character over.
    pub fn recode(&self, text: &[u8], cut: &mut Vec<u8>) -> Vec<u8> {
        match self {
            Recoder::Bytes(table) => text.iter().map(|b| table.get(usize::from(*b)).copied().unwrap_or(*b)).collect(),
            Recoder::ToUtf8(table) => {
                text.iter().filter_map(|b| table.get(usize::from(*b))).flatten().copied().collect()
            }
            Recoder::FromUtf8(table) => {
                cut.extend_from_slice(text);
                let whole = std::mem::take(cut);
                let mut out = Vec::with_capacity(whole.len());
                let mut rest = whole.as_slice();
                loop {
                    let (valid, wrong) = match std::str::from_utf8(rest) {
                        Ok(valid) => (valid, None),
                        Err(e) => {
                            let (valid, after) = rest.split_at(e.valid_up_to());
                            (std::str::from_utf8(valid).unwrap_or_default(), Some((after, e.error_len())))
                        }
                    };
                    for character in valid.chars() {
                        match table.get(&character) {
                            Some(byte) => out.push(*byte),
                            // Characters missing in the charset become HTML references.
                            None => out.extend_from_slice(format!("&#{};", u32::from(character)).as_bytes()),
                        }
                    }
                    match wrong {
                        None => return out,
                        Some((after, None)) => {
                            *cut = after.to_vec();
                            return out;
                        }
                        Some((after, Some(length))) => {
                            out.push(b'?');
                            rest = after.get(length..).unwrap_or_default();
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_syntax::{FileId, TreeItem, parse_file};

    fn add(maps: &mut CharsetMaps, text: &str) -> Result<(), String> {
        let items = parse_file(FileId(0), text.as_bytes());
        let Some(TreeItem::Directive(d)) = items.into_iter().next() else { panic!("no block") };
        maps.add(&d).map_err(|p| format!("{:?}", p.words))
    }

    fn maps(text: &str) -> CharsetMaps {
        let mut maps = CharsetMaps::default();
        add(&mut maps, text).expect(text);
        maps
    }

    #[test]
    fn bytes_both_ways() {
        let maps = maps("charset_map B A { 58 59; C0 FE; }");
        let there = maps.find(b"b", b"a").expect("a table");
        assert_eq!(there.recode(b"aX\xc0\xc1", &mut Vec::new()), b"aY\xfe?");
        let back = maps.find(b"A", b"B").expect("a table");
        assert_eq!(back.recode(b"aY\xfe\xff", &mut Vec::new()), b"aX\xc0?");
        assert!(!there.changes_length());
    }

    #[test]
    fn utf8_both_ways() {
        let maps = maps("charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; }");
        let there = maps.find(b"koi8-r", b"UTF-8").expect("a table");
        assert_eq!(there.recode(b"x\xc1\xc2\xc3", &mut Vec::new()), "xаб?".as_bytes());
        let back = maps.find(b"utf-8", b"koi8-r").expect("a table");
        let mut cut = Vec::new();
        let mut out = back.recode("xаб€".as_bytes(), &mut cut);
        out.extend(back.recode(b"\xd0", &mut cut));
        out.extend(back.recode(b"\xb0\xff", &mut cut));
        assert_eq!(out, b"x\xc1\xc2&#8364;\xc1?");
        assert!(cut.is_empty());
    }

    #[test]
    fn complaints_in_nginx_words() {
        let mut all = CharsetMaps::default();
        for (text, want) in [
            ("charset_map a A { }", "\\\"charset_map\\\" between the same charsets \\\"a\\\" and \\\"A\\\""),
            ("charset_map utf-8 a { }", "should be given in the second column"),
            ("charset_map a b { x 1; }", "invalid value \\\"x\\\""),
            ("charset_map a b { include x; }", "invalid value \\\"include\\\""),
            ("charset_map a b { 1; }", "invalid parameters number"),
            ("charset_map a utf-8 { 80 D0; }", "invalid value \\\"D0\\\""),
        ] {
            let got = add(&mut all, text).expect_err(text);
            assert!(got.contains(want), "{text}: {got}");
        }
        add(&mut all, "charset_map a b { }").expect("the first");
        assert!(add(&mut all, "charset_map b a { }").expect_err("again").contains("duplicate \\\"charset_map\\\""));
    }
}
