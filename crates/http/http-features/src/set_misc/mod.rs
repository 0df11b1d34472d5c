//! set_escape_uri, set_md5 and related (third-party module `set-misc`): variables computed in a block's script;
//! `compute.rs` has the functions.

mod compute;

use crate::shared::script_steps::{self, Compute, ComputedValue, ScriptStep};
use aws_lc_rs::hmac;
use base64::Engine as _;
use compute::{BASE64, BASE64URL, Base32};
use conf_schema::value::Flag;
use conf_schema::{At, ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variable::{HttpVariables, VarId};
use http_engine::{BlockPlan, Feature, HttpTemplate, PlanOrder, Request};
use md5::Md5;
use observe::Severity;
use sha1::{Digest, Sha1};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

directives! {
    pub struct SetMiscConf from SetMiscInput {
        /// Percent-encodes a value as a URI component. Without a second argument the variable itself is converted.
        set_escape_uri: SetLines,
        /// Decodes percent-encoding, and `+` to a space.
        set_unescape_uri: SetLines,
        /// Quotes a value as a MySQL string.
        set_quote_sql_str: SetLines,
        /// Quotes a value as a PostgreSQL string.
        set_quote_pgsql_str: SetLines,
        /// Quotes a value as a JSON string; an empty value becomes `null`.
        set_quote_json_str: SetLines,
        /// Sets a variable if it is empty.
        set_if_empty: SetLines,
        /// MD5 digest of a value, in hexadecimal.
        set_md5: SetLines,
        /// SHA-1 digest of a value, in hexadecimal.
        set_sha1: SetLines,
        /// HMAC-SHA1 of a value with a key, as bytes.
        set_hmac_sha1: SetLines,
        /// HMAC-SHA256 of a value with a key, as bytes.
        set_hmac_sha256: SetLines,
        /// Encodes a value with base64.
        set_encode_base64: SetLines,
        /// Decodes base64; invalid input becomes empty.
        set_decode_base64: SetLines,
        /// Encodes a value with URL-safe base64, without padding.
        set_encode_base64url: SetLines,
        /// Decodes URL-safe base64; invalid input becomes empty.
        set_decode_base64url: SetLines,
        /// Encodes a value with base32.
        set_encode_base32: SetLines,
        /// Decodes base32; invalid input becomes empty.
        set_decode_base32: SetLines,
        /// Pads base32 with `=`.
        set_base32_padding: Flag,
        /// Former name of `set_base32_padding`.
        set_misc_base32_padding: Flag,
        /// Alphabet of base32, 32 characters.
        set_base32_alphabet: Alphabet,
        /// Encodes a value in hexadecimal.
        set_encode_hex: SetLines,
        /// Decodes a hexadecimal string. Invalid input results in status 500.
        set_decode_hex: SetLines,
        /// Random number in a range, bounds included. Not suitable for secrets.
        set_random: SetLines,
        /// Cryptographically random text of 1 to 64 letters and digits.
        set_secure_random_alphanum: SetLines,
        /// Cryptographically random text of 1 to 64 lower-case letters.
        set_secure_random_lcalpha: SetLines,
        /// Next number of a range; the first follows the last. A variable without a number continues the location's
        /// sequence.
        /// Differs: all worker threads share one sequence.
        set_rotate: SetLines,
        /// Today's date in local time, as `2026-11-23`.
        set_local_today: SetLines,
        /// Time in GMT, in a `strftime` format.
        set_formatted_gmt_time: SetLines,
        /// Local time, in a `strftime` format.
        set_formatted_local_time: SetLines,
        /// Selects an upstream of a list by the hash of a value.
        set_hashed_upstream: SetLines,
        /// Defines a list of upstreams for `set_hashed_upstream`.
        upstream_list: UpstreamList,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    EscapeUri,
    UnescapeUri,
    QuoteSql,
    QuotePgsql,
    QuoteJson,
    IfEmpty,
    Md5,
    Sha1,
    HmacSha1,
    HmacSha256,
    EncodeBase64,
    DecodeBase64,
    EncodeBase64Url,
    DecodeBase64Url,
    EncodeBase32,
    DecodeBase32,
    EncodeHex,
    DecodeHex,
    Random,
    SecureAlphanum,
    SecureLcalpha,
    Rotate,
    LocalToday,
    GmtTime,
    LocalTime,
    HashedUpstream,
}

impl Operation {
    /// The variable's old value is an input, and may be missing.
    fn takes_old(self) -> bool {
        matches!(self, Operation::IfEmpty | Operation::Rotate)
    }
    fn named(name: &[u8]) -> Option<Operation> {
        Some(match name {
            b"set_escape_uri" => Operation::EscapeUri,
            b"set_unescape_uri" => Operation::UnescapeUri,
            b"set_quote_sql_str" => Operation::QuoteSql,
            b"set_quote_pgsql_str" => Operation::QuotePgsql,
            b"set_quote_json_str" => Operation::QuoteJson,
            b"set_if_empty" => Operation::IfEmpty,
            b"set_md5" => Operation::Md5,
            b"set_sha1" => Operation::Sha1,
            b"set_hmac_sha1" => Operation::HmacSha1,
            b"set_hmac_sha256" => Operation::HmacSha256,
            b"set_encode_base64" => Operation::EncodeBase64,
            b"set_decode_base64" => Operation::DecodeBase64,
            b"set_encode_base64url" => Operation::EncodeBase64Url,
            b"set_decode_base64url" => Operation::DecodeBase64Url,
            b"set_encode_base32" => Operation::EncodeBase32,
            b"set_decode_base32" => Operation::DecodeBase32,
            b"set_encode_hex" => Operation::EncodeHex,
            b"set_decode_hex" => Operation::DecodeHex,
            b"set_random" => Operation::Random,
            b"set_secure_random_alphanum" => Operation::SecureAlphanum,
            b"set_secure_random_lcalpha" => Operation::SecureLcalpha,
            b"set_rotate" => Operation::Rotate,
            b"set_local_today" => Operation::LocalToday,
            b"set_formatted_gmt_time" => Operation::GmtTime,
            b"set_formatted_local_time" => Operation::LocalTime,
            b"set_hashed_upstream" => Operation::HashedUpstream,
            _ => return None,
        })
    }
}

#[derive(Clone)]
struct WrittenLine {
    order: usize,
    at: At,
    variable: VarId,
    arguments: Vec<HttpTemplate>,
    operation: Operation,
    lists: Option<Lists>,
}

#[derive(Clone)]
pub struct SetLines(Vec<WrittenLine>);

impl ValueKind for SetLines {
    const SYNTAX: &'static str = "$variable [value ...]";
    const REPEATS: bool = true;
    const INHERITS: bool = false;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(name), Some(operation)) = (d.args.first(), Operation::named(&d.name.bytes)) else {
            return Err(Problem::invalid());
        };
        let text = name.text().into_owned();
        let Some(variable) = text.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{text}\""))
                .at(0)
                .hint("a variable name begins with \"$\""));
        };
        let variable = cx.get::<HttpVariables>().script(variable).map_err(|p| p.at(0))?;
        // With one argument, the variable itself is the first operand.
        let in_place = d.args.len() == 1 && operation != Operation::LocalToday;
        let first = usize::from(!in_place && !operation.takes_old());
        let mut arguments = Vec::new();
        for (index, word) in d.args.iter().enumerate().skip(first) {
            arguments.push(HttpTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?);
        }
        let mut lists = None;
        if operation == Operation::HashedUpstream {
            let all = cx.get::<UpstreamLists>().0.clone();
            if let Some(list) = arguments.first().and_then(HttpTemplate::as_literal)
                && !all.contains_key(list)
            {
                let shown = String::from_utf8_lossy(list).into_owned();
                let words = format!("set_hashed_upstream: upstream list \"{shown}\" not defined yet");
                return Err(Problem::says(words).at(1).hint("write \"upstream_list\" before it"));
            }
            lists = Some(all);
        }
        let order = script_steps::next_order(cx);
        Ok(SetLines(vec![WrittenLine { order, at: cx.at, variable, arguments, operation, lists }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

type Lists = Arc<HashMap<Vec<u8>, Vec<Vec<u8>>>>;

#[derive(Default)]
struct UpstreamLists(Lists);

#[derive(Clone)]
pub struct UpstreamList;

impl ValueKind for UpstreamList {
    const SYNTAX: &'static str = "name upstream ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((name, upstreams)) = d.args.split_first() else { return Err(Problem::invalid()) };
        let all = Arc::make_mut(&mut cx.get::<UpstreamLists>().0);
        if all.insert(name.bytes.clone(), upstreams.iter().map(|word| word.bytes.clone()).collect()).is_some() {
            return Err(Problem::says(format!("duplicate upstream list name \"{}\"", name.text())).at(0));
        }
        Ok(UpstreamList)
    }
}

#[derive(Clone, Debug)]
pub struct Alphabet([u8; 32]);

impl ValueKind for Alphabet {
    const SYNTAX: &'static str = "letters";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        match word.try_into() {
            Ok(letters) => Ok(Alphabet(letters)),
            Err(_) => Err(Problem::says("\"set_base32_alphabet\" takes an alphabet of 32 characters").at(0)),
        }
    }
}

pub struct SetMisc;

impl Feature for SetMisc {
    fn table(&self) -> FeatureTable {
        SetMiscConf::table("set_misc", ContextArea::Http)
    }
    fn plan_order(&self) -> PlanOrder {
        // The block's script takes the lines.
        PlanOrder::Before
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<SetMiscConf>() else { return Ok(()) };
        let SetMiscConf {
            set_escape_uri,
            set_unescape_uri,
            set_quote_sql_str,
            set_quote_pgsql_str,
            set_quote_json_str,
            set_if_empty,
            set_md5,
            set_sha1,
            set_hmac_sha1,
            set_hmac_sha256,
            set_encode_base64,
            set_decode_base64,
            set_encode_base64url,
            set_decode_base64url,
            set_encode_base32,
            set_decode_base32,
            set_base32_padding,
            set_misc_base32_padding,
            set_base32_alphabet,
            set_encode_hex,
            set_decode_hex,
            set_random,
            set_secure_random_alphanum,
            set_secure_random_lcalpha,
            set_rotate,
            set_local_today,
            set_formatted_gmt_time,
            set_formatted_local_time,
            set_hashed_upstream,
            upstream_list: _,
        } = conf;
        let all = [
            set_escape_uri,
            set_unescape_uri,
            set_quote_sql_str,
            set_quote_pgsql_str,
            set_quote_json_str,
            set_if_empty,
            set_md5,
            set_sha1,
            set_hmac_sha1,
            set_hmac_sha256,
            set_encode_base64,
            set_decode_base64,
            set_encode_base64url,
            set_decode_base64url,
            set_encode_base32,
            set_decode_base32,
            set_encode_hex,
            set_decode_hex,
            set_random,
            set_secure_random_alphanum,
            set_secure_random_lcalpha,
            set_rotate,
            set_local_today,
            set_formatted_gmt_time,
            set_formatted_local_time,
            set_hashed_upstream,
        ];
        let padding = set_base32_padding.or(*set_misc_base32_padding).unwrap_or(true);
        let alphabet = set_base32_alphabet.as_ref().map_or(*b"0123456789abcdefghijklmnopqrstuv", |a| a.0);
        let base32 = Base32 { alphabet, padding };
        let rotation = Arc::new(Rotation(AtomicI64::new(NOT_YET)));
        let steps = all.into_iter().flatten().flat_map(|lines| &lines.0).cloned().map(|line| ScriptStep {
            order: line.order,
            at: line.at,
            variable: line.variable,
            arguments: line.arguments,
            quiet: usize::from(line.operation.takes_old()),
            compute: Arc::new(SetLine {
                operation: line.operation,
                lists: line.lists,
                base32: base32.clone(),
                rotation: rotation.clone(),
            }),
        });
        script_steps::hand_over(block.cx, steps);
        Ok(())
    }
}

struct Rotation(AtomicI64);
const NOT_YET: i64 = i64::MIN;

const RANDOM_LETTERS_MAX: usize = 64;

struct SetLine {
    operation: Operation,
    lists: Option<Lists>,
    base32: Base32,
    rotation: Arc<Rotation>,
}

impl Compute for SetLine {
    fn compute(&self, r: &mut Request, values: &[Vec<u8>], out: &mut Vec<u8>) -> ComputedValue {
        let value = values.first().map(Vec::as_slice).unwrap_or_default();
        let second = values.get(1).map(Vec::as_slice).unwrap_or_default();
        let failed = |r: &Request, words: std::fmt::Arguments<'_>| {
            r.log(Severity::Error, words);
            ComputedValue::Failed
        };
        let sign = |algorithm, out: &mut Vec<u8>| {
            out.extend_from_slice(hmac::sign(&hmac::Key::new(algorithm, value), second).as_ref());
        };
        match self.operation {
            Operation::EscapeUri => compute::escape_uri(value, out),
            Operation::UnescapeUri => compute::unescape_uri(value, out),
            Operation::QuoteSql => compute::quote_sql(value, out),
            Operation::QuotePgsql => compute::quote_pgsql(value, out),
            Operation::QuoteJson => compute::quote_json(value, out),
            Operation::IfEmpty if !value.is_empty() => return ComputedValue::Unchanged,
            Operation::IfEmpty => out.extend_from_slice(second),
            Operation::Md5 => compute::write_hex(&Md5::digest(value), out),
            Operation::Sha1 => compute::write_hex(&Sha1::digest(value), out),
            Operation::HmacSha1 => sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, out),
            Operation::HmacSha256 => sign(hmac::HMAC_SHA256, out),
            Operation::EncodeBase64 => out.extend(BASE64.encode(value).bytes()),
            Operation::DecodeBase64 => compute::base64_decoded(&BASE64, value, out),
            Operation::EncodeBase64Url => out.extend(BASE64URL.encode(value).bytes()),
            Operation::DecodeBase64Url => compute::base64_decoded(&BASE64URL, value, out),
            Operation::EncodeBase32 => self.base32.encode(value, out),
            Operation::DecodeBase32 => self.base32.decode(value, out),
            Operation::EncodeHex => compute::write_hex(value, out),
            Operation::DecodeHex => {
                if compute::write_unhex(value, out).is_none() {
                    return failed(r, format_args!("set_decode_hex: invalid value"));
                }
            }
            Operation::Random => {
                let (Some(from), Some(to)) = (number(value), number(second)) else {
                    return failed(r, format_args!("set_random: bad \"from\" or \"to\" argument"));
                };
                let (from, to) = (from.min(to), from.max(to));
                let drawn = u64::from_le_bytes(half(net::random::bytes16()));
                let range = (to - from) as u64 + 1;
                out.extend((from + (drawn % range) as i64).to_string().bytes());
            }
            Operation::SecureAlphanum | Operation::SecureLcalpha => {
                let length = number(value).and_then(|n| usize::try_from(n).ok());
                let Some(length) = length.filter(|n| (1..=RANDOM_LETTERS_MAX).contains(n)) else {
                    return failed(r, format_args!("set_secure_random: bad \"length\" argument"));
                };
                let letters: &[u8] = match self.operation {
                    Operation::SecureLcalpha => b"abcdefghijklmnopqrstuvwxyz",
                    _ => b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
                };
                random_letters(letters, length, out);
            }
            Operation::Rotate => {
                let (Some(from), Some(to)) = (number(second), values.get(2).and_then(|v| number(v))) else {
                    return failed(r, format_args!("set_rotate: bad \"from\" or \"to\" argument"));
                };
                out.extend(rotate(r, &self.rotation, value, from.min(to), from.max(to)).to_string().bytes());
            }
            Operation::LocalToday => return time(r, "%Y-%m-%d", true, out),
            Operation::GmtTime => return time(r, &String::from_utf8_lossy(value), false, out),
            Operation::LocalTime => return time(r, &String::from_utf8_lossy(value), true, out),
            Operation::HashedUpstream => {
                let Some(list) = self.lists.as_ref().and_then(|lists| lists.get(value)) else {
                    let shown = String::from_utf8_lossy(value);
                    return failed(r, format_args!("set_hashed_upstream: upstream list \"{shown}\" not defined yet"));
                };
                // As in nginx's tables: hash of the lower-case name.
                let hash = second
                    .iter()
                    .fold(0u64, |hash, c| hash.wrapping_mul(31).wrapping_add(u64::from(c.to_ascii_lowercase())));
                let index = (hash as u32) as usize % list.len().max(1);
                out.extend_from_slice(list.get(index).map(Vec::as_slice).unwrap_or_default());
            }
        }
        ComputedValue::Value
    }
}

fn number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok().filter(|t| t.bytes().all(|c| c.is_ascii_digit()))?;
    text.parse::<i64>().ok().filter(|n| *n < i64::MAX)
}

fn half(bytes: [u8; 16]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[..8]);
    out
}

fn random_letters(letters: &[u8], length: usize, out: &mut Vec<u8>) {
    let end = out.len() + length;
    let fair = 256 - 256 % letters.len();
    while out.len() < end {
        let drawn = net::random::bytes16().into_iter().map(usize::from).filter(|byte| *byte < fair);
        out.extend(drawn.filter_map(|byte| letters.get(byte % letters.len())).take(end - out.len()));
    }
}

fn rotate(r: &Request, Rotation(last): &Rotation, value: &[u8], from: i64, to: i64) -> i64 {
    let next = |current: i64| match current.checked_add(1) {
        Some(next) if (from..=to).contains(&next) => next,
        _ => from,
    };
    if let Some(current) = number(value) {
        let next = next(current);
        last.store(next, Ordering::Relaxed);
        return next;
    }
    if !value.is_empty() {
        r.log(Severity::Error, format_args!("set_rotate: bad current value: \"{}\"", String::from_utf8_lossy(value)));
    }
    let step = |last: i64| if last == NOT_YET { from } else { next(last) };
    match last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(step(last))) {
        Ok(before) | Err(before) => step(before),
    }
}

fn time(r: &Request, form: &str, local: bool, out: &mut Vec<u8>) -> ComputedValue {
    match observe::clock::format_time(base::clock::unix_seconds(), local, form) {
        Some(text) => {
            out.extend(text.bytes());
            ComputedValue::Value
        }
        None => {
            r.log(Severity::Error, format_args!("the time has no form \"{form}\""));
            ComputedValue::Failed
        }
    }
}
