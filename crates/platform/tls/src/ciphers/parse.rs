//! OpenSSL's cipher-string language (`ssl_cipher_process_rulestr` and `ssl_create_cipher_list` of OpenSSL 3.0).

use super::Suite;
use super::attributes::{Selector, alias, encryption as enc, strength};
use super::table::SUITES;

/// The result of a cipher string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherList {
    /// Suites that OpenSSL would offer up to TLS 1.2, by preference, supported or not.
    pub suites: Vec<&'static Suite>,
    /// `@SECLEVEL`, if the string sets it.
    pub security_level: Option<u8>,
    /// Words that OpenSSL does not know, and ignores.
    pub unknown: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CipherRule {
    Add,
    Order,
    Remove,
    Kill,
}

struct Entry {
    suite: &'static Suite,
    active: bool,
}

/// Evaluates a cipher string. Fails with OpenSSL's message when nothing is selected or the syntax is invalid.
pub fn evaluate_ciphers(text: &str) -> Result<CipherList, &'static str> {
    let mut list: Vec<Entry> = SUITES.iter().map(|suite| Entry { suite, active: false }).collect();
    let mut seen = CipherList { suites: Vec::new(), security_level: None, unknown: Vec::new() };
    let mut rest = text;
    // "DEFAULT" is special at the start only; the rest is evaluated after it.
    if let Some(after) = rest.strip_prefix("DEFAULT") {
        process("ALL:!COMPLEMENTOFDEFAULT:!eNULL", &mut list, &mut seen)?;
        rest = after.strip_prefix(':').unwrap_or(after);
    }
    process(rest, &mut list, &mut seen)?;
    seen.suites = list.into_iter().filter(|e| e.active).map(|e| e.suite).collect();
    if seen.suites.is_empty() {
        return Err("no cipher match");
    }
    Ok(seen)
}

pub(super) fn separator(c: char) -> bool {
    matches!(c, ':' | ' ' | ';' | ',')
}

fn process(text: &str, list: &mut Vec<Entry>, seen: &mut CipherList) -> Result<(), &'static str> {
    for item in text.split(separator).flat_map(commands).filter(|item| !item.is_empty()) {
        if let Some(command) = item.strip_prefix('@') {
            special(command, list, seen)?;
            continue;
        }
        let (rule, words) = match item.as_bytes().first() {
            Some(b'-') => (CipherRule::Remove, item.get(1..)),
            Some(b'+') => (CipherRule::Order, item.get(1..)),
            Some(b'!') => (CipherRule::Kill, item.get(1..)),
            _ => (CipherRule::Add, Some(item)),
        };
        let words = words.unwrap_or("");
        if !words.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric()) {
            return Err("invalid command");
        }
        // As in OpenSSL, a word ends with its letters: "AES/x" continues with another command.
        if !words.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'=' | b'_' | b'+')) {
            return Err("invalid command");
        }
        match select(words) {
            Some(selector) => apply(rule, &selector, list),
            None => seen.unknown.push(words.to_string()),
        }
    }
    Ok(())
}

/// Splits an item before each `!`: as in OpenSSL, the command after a word needs no separator (`!RSA!aNULL`). An unknown
/// word and a special command end with their item.
fn commands(item: &str) -> impl Iterator<Item = &str> {
    let mut rest = item;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.get(1..).and_then(|after| after.find('!')).map_or(rest.len(), |at| at + 1);
        let (command, after) = rest.split_at_checked(end)?;
        let word = command.trim_start_matches(['-', '+', '!']);
        let ends = command.starts_with('@') || (!word.contains('@') && select(word).is_none());
        rest = if ends { "" } else { after };
        Some(command)
    })
}

fn special(command: &str, list: &mut Vec<Entry>, seen: &mut CipherList) -> Result<(), &'static str> {
    if command == "STRENGTH" {
        strength_sort(list);
        return Ok(());
    }
    if let Some(level) = command.strip_prefix("SECLEVEL=") {
        match level.as_bytes() {
            [digit @ b'0'..=b'5'] => seen.security_level = Some(digit - b'0'),
            _ => return Err("invalid command"),
        }
        return Ok(());
    }
    Err("invalid command")
}

fn select(words: &str) -> Option<Selector> {
    let mut all = Selector::default();
    for word in words.split('+') {
        let one = match SUITES.iter().find(|s| s.name == word) {
            // A named suite's parts narrow the item like other words.
            Some(suite) => Selector {
                kx: suite.kx,
                auth: suite.auth,
                enc: suite.enc,
                mac: suite.mac,
                level: suite.class & strength::HIGH,
                id: Some(suite.id),
                ..Selector::default()
            },
            None => alias(word)?,
        };
        // Intersects masks of two words; an empty one matches nothing.
        let narrow16 = |a: u16, b: u16| if a == 0 || b == 0 { Some(a | b) } else { Some(a & b).filter(|m| *m != 0) };
        let narrow32 = |a: u32, b: u32| if a == 0 || b == 0 { Some(a | b) } else { Some(a & b).filter(|m| *m != 0) };
        all.kx = narrow16(all.kx, one.kx)?;
        all.auth = narrow16(all.auth, one.auth)?;
        all.enc = narrow32(all.enc, one.enc)?;
        all.mac = narrow16(all.mac, one.mac)?;
        if one.level != 0 {
            if all.level != 0 && all.level != one.level {
                return None;
            }
            all.level = one.level;
        }
        all.fips |= one.fips;
        all.not_default |= one.not_default;
        if one.version.is_some() {
            if all.version.is_some() && all.version != one.version {
                return None;
            }
            all.version = one.version;
        }
        if one.id.is_some() {
            all.id = one.id;
        }
    }
    Some(all)
}

fn matches(suite: &Suite, s: &Selector) -> bool {
    s.id.is_none_or(|id| suite.id == id)
        && (s.kx == 0 || suite.kx & s.kx != 0)
        && (s.auth == 0 || suite.auth & s.auth != 0)
        && (s.enc == 0 || suite.enc & s.enc != 0)
        && (s.mac == 0 || suite.mac & s.mac != 0)
        && (s.level == 0 || suite.class & s.level != 0)
        && (!s.fips || suite.class & strength::FIPS != 0)
        && (!s.not_default || suite.class & strength::NOT_DEFAULT != 0)
        && s.version.is_none_or(|v| suite.version == v)
}

fn apply(rule: CipherRule, selector: &Selector, list: &mut Vec<Entry>) {
    let old = std::mem::take(list);
    let (hit, mut rest): (Vec<Entry>, Vec<Entry>) = old.into_iter().partition(|e| {
        matches(e.suite, selector)
            && match rule {
                CipherRule::Add => !e.active,
                CipherRule::Order | CipherRule::Remove => e.active,
                CipherRule::Kill => true,
            }
    });
    match rule {
        CipherRule::Kill => {}
        // Removed suites move to the front, in order, for a later addition.
        CipherRule::Remove => {
            list.extend(hit.into_iter().map(|e| Entry { active: false, ..e }));
        }
        CipherRule::Add | CipherRule::Order => {
            rest.extend(hit.into_iter().map(|e| Entry { active: true, ..e }));
        }
    }
    list.append(&mut rest);
}

/// `@STRENGTH`: sorts active suites by key length, stably.
fn strength_sort(list: &mut Vec<Entry>) {
    let (mut active, mut rest): (Vec<Entry>, Vec<Entry>) = std::mem::take(list).into_iter().partition(|e| e.active);
    active.sort_by_key(|e| std::cmp::Reverse(bits(e.suite)));
    rest.append(&mut active);
    *list = rest;
}

fn bits(suite: &Suite) -> u16 {
    const BITS_256: u32 = enc::AES256
        | enc::CAMELLIA256
        | enc::AES256_GCM
        | enc::AES256_CCM
        | enc::AES256_CCM8
        | enc::CHACHA20
        | enc::ARIA256;
    match suite.enc {
        enc::NULL => 0,
        e if e & BITS_256 != 0 => 256,
        _ => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const STRINGS: &[&str] = &[
        "HIGH:!aNULL:!MD5",
        "RC4:HIGH:!aNULL:!MD5:!kEDH",
        "DEFAULT",
        "DEFAULT:!DHE",
        "DEFAULT:ECCdraft",
        "ALL",
        "ALL:!COMPLEMENTOFDEFAULT:!eNULL",
        "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:\
         ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-GCM-SHA256",
        "EECDH+AESGCM:EDH+AESGCM",
        "EECDH+CHACHA20:EECDH+AES128:RSA+AES128:EECDH+AES256:RSA+AES256:EECDH+3DES:RSA+3DES:!MD5",
        "ALL:!aNULL:!ADH:!eNULL:!LOW:!EXP:RC4+RSA:+HIGH:+MEDIUM",
        "kEECDH+ECDSA+AES128 kEECDH+ECDSA+AES256 kEECDH+AES128 kEECDH+AES256 +SHA !aNULL !eNULL !LOW !MD5 !EXP !DSS !PSK",
        "ECDHE+AESGCM,ECDHE+CHACHA20;DHE",
        "AES256+SHA:AES128:@STRENGTH",
        "ALL:-AES:AES256:@STRENGTH",
        "CAMELLIA:-CAMELLIA128:ARIA:+ARIA256:CAMELLIA128",
        "HIGH:@SECLEVEL=2:@STRENGTH",
        "TLSv1.2:!kRSA",
        "TLSv1.2+aRSA:SSLv3+aRSA",
        "FIPS:!PSK",
        "PSK:SRP",
        "AESCCM8:AESCCM:@STRENGTH",
        "aECDSA:aRSA:!SHA1:!SHA256:!SHA384",
        "HIGH+kRSA+SHA256",
        "ECDHE+RSA",
        "NULL",
        "EECDH:DHE+AESGCM:DHE:!RSA!aNULL:!eNULL:!LOW:!CAMELLIA:!SEED",
        "ALL!AES!kRSA:!PSK",
        "HIGH:UNKNOWN!AES",
        "HIGH:@STRENGTH!AES",
        "HIGH:!@STRENGTH",
        "HIGH!",
    ];

    fn ours(text: &str) -> Result<String, &'static str> {
        evaluate_ciphers(text).map(|l| l.suites.iter().map(|s| s.name).collect::<Vec<_>>().join(":"))
    }

    /// The installed OpenSSL's list without TLS 1.3 suites; `None` without the program or for another version.
    fn theirs(text: &str) -> Option<Result<String, ()>> {
        let version = Command::new("openssl").arg("version").output().ok()?;
        if !version.stdout.starts_with(b"OpenSSL 3.0") {
            return None;
        }
        let out = Command::new("openssl").args(["ciphers", text]).output().ok()?;
        if !out.status.success() {
            return Some(Err(()));
        }
        let all = String::from_utf8(out.stdout).ok()?;
        let rest: Vec<&str> = all.trim().split(':').filter(|name| !name.starts_with("TLS_")).collect();
        Some(Ok(rest.join(":")))
    }

    #[test]
    fn strings_select_what_openssl_selects_in_its_order() {
        for text in STRINGS {
            let Some(want) = theirs(text) else {
                println!("no OpenSSL 3.0 here: not compared");
                return;
            };
            assert_eq!(ours(text).map_err(|_| ()), want, "{text}");
        }
    }

    #[test]
    fn random_strings_select_what_openssl_selects() {
        const WORDS: &[&str] = &[
            "ALL",
            "HIGH",
            "AES",
            "AES128",
            "AES256",
            "AESGCM",
            "AESCCM",
            "ECDHE",
            "kECDHE",
            "DHE",
            "EDH",
            "kRSA",
            "RSA",
            "aRSA",
            "aECDSA",
            "aNULL",
            "eNULL",
            "PSK",
            "kPSK",
            "SHA1",
            "SHA256",
            "SHA384",
            "MD5",
            "TLSv1.2",
            "SSLv3",
            "CHACHA20",
            "CAMELLIA",
            "ARIA",
            "DSS",
            "LOW",
            "FIPS",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "AES128-SHA",
            "nonsense",
        ];
        let mut seed = 20_261_122_u64;
        let mut draw = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % n
        };
        for _ in 0..150 {
            let mut text = String::new();
            for i in 0..=draw(5) {
                if i > 0 {
                    text.push(':');
                }
                text.push_str(["", "", "", "!", "-", "+"][draw(6)]);
                text.push_str(WORDS[draw(WORDS.len())]);
                if draw(3) == 0 {
                    text.push('+');
                    text.push_str(WORDS[draw(WORDS.len())]);
                }
            }
            if draw(5) == 0 {
                text.push_str(":@STRENGTH");
            }
            // A leading "-" would be an option.
            let text = format!(":{text}");
            let Some(want) = theirs(&text) else { return };
            assert_eq!(ours(&text).map_err(|_| ()), want, "{text}");
        }
    }

    #[test]
    fn strings_outside_of_the_grammar_are_refused() {
        for text in ["", "!", "HIGH:@", "HIGH:@SECLEVEL=9", "HIGH:@STRONG", "nothing-of-this", "HIGH:!ALL:!eNULL"] {
            assert!(evaluate_ciphers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_that_nobody_knows_are_named() {
        let list = evaluate_ciphers("DEFAULT:ECCdraft:@SECLEVEL=1").expect("a list");
        assert_eq!(list.unknown, ["ECCdraft"]);
        assert_eq!(list.security_level, Some(1));
    }
}
