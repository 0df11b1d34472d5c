//! `otel_exporter`: where spans go, and how.

use conf_schema::value::{parse_msec, parse_size};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Row;
use otlp::{Endpoint, ExportProtocol, Exporter, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tls::{ClientRules, ClientSettings};
use tls_directives::authorities;

/// Spans that may wait.
const SPANS_MAX: u64 = 1 << 20;
const BATCH_SIZE: u64 = 512;
const BATCH_COUNT: u64 = 4;
const INTERVAL_MS: u64 = 5_000;
/// Certificates between a receiver's and its authority's.
const VERIFY_DEPTH: u32 = 10;
/// Fields that the exporter writes itself.
const OWN_FIELDS: [&str; 9] = [
    "host",
    "content-type",
    "content-length",
    "connection",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
];

#[derive(Clone)]
pub struct ExporterBlock {
    endpoint: Endpoint,
    headers: Vec<(String, String)>,
    rules: Option<Arc<ClientRules>>,
    interval: Duration,
    batch_size: usize,
    batch_count: usize,
}

impl ExporterBlock {
    /// Makes the exporter of a configuration.
    pub fn exporter(&self, service: &str, attributes: &[(String, String)]) -> Exporter {
        let mut resource = vec![("service.name".to_string(), service.to_string())];
        resource.extend(attributes.iter().filter(|(name, _)| name != "service.name").cloned());
        Exporter::new(Settings {
            endpoint: self.endpoint.clone(),
            headers: self.headers.clone(),
            rules: self.rules.clone(),
            interval: self.interval,
            batch_size: self.batch_size,
            batch_count: self.batch_count,
            resource: otlp::proto::key_values(&resource),
            scope: ("tidegate".into(), env!("CARGO_PKG_VERSION").into()),
        })
    }
}

#[derive(Default)]
struct ExporterDraft {
    seen: Vec<Vec<u8>>,
    endpoint: Option<String>,
    protocol: Option<ExportProtocol>,
    headers: Vec<(String, String)>,
    trusted: Option<PathBuf>,
    interval: Option<u64>,
    batch_size: Option<u64>,
    batch_count: Option<u64>,
}

impl ValueKind for ExporterBlock {
    const SYNTAX: &'static str = "{ ... }";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut draft = ExporterDraft::default();
        for row in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            draft.row(cx, row).map_err(|problem| problem.on(row))?;
        }
        draft.finish(cx)
    }
}

impl ExporterDraft {
    fn row(&mut self, cx: &mut Cx, row: &Row) -> Result<(), Problem> {
        let name = row.name.text().into_owned();
        let words: Vec<String> = row.args.iter().map(|word| word.text().into_owned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if name != "header" && self.seen.contains(&row.name.bytes) {
            return Err(Problem::says(format!("\"{name}\" directive of \"otel_exporter\" is duplicate")));
        }
        self.seen.push(row.name.bytes.clone());
        let count = |text: &str| match parse_size(text.as_bytes()).filter(|n| (1..=SPANS_MAX).contains(n)) {
            Some(n) => Ok(n),
            None => {
                Err(Problem::says(format!("\"{name}\" directive of \"otel_exporter\" has invalid value \"{text}\""))
                    .at(0)
                    .hint(format!("a number from 1 to {SPANS_MAX}")))
            }
        };
        match (name.as_str(), words.as_slice()) {
            ("endpoint", [text]) => self.endpoint = Some(text.to_string()),
            ("protocol", ["grpc"]) => self.protocol = Some(ExportProtocol::Grpc),
            ("protocol", ["http/protobuf"]) => self.protocol = Some(ExportProtocol::Http),
            ("protocol", [other]) => {
                let problem = Problem::says(format!("invalid protocol \"{other}\"")).at(0);
                return Err(problem.hint("\"grpc\" or \"http/protobuf\""));
            }
            ("trusted_certificate", [file]) => self.trusted = Some(cx.conf_full_name(file)),
            ("header", [field, value]) => self.headers.push(header(field, value)?),
            ("interval", [text]) => {
                let interval = parse_msec(text.as_bytes()).filter(|interval| *interval > 0);
                let wrong = || {
                    Problem::says(format!("\"interval\" directive of \"otel_exporter\" has invalid value \"{text}\""))
                        .at(0)
                };
                self.interval = Some(interval.ok_or_else(wrong)?);
            }
            ("batch_size", [text]) => self.batch_size = Some(count(text)?),
            ("batch_count", [text]) => self.batch_count = Some(count(text)?),
            (
                "endpoint" | "protocol" | "trusted_certificate" | "header" | "interval" | "batch_size" | "batch_count",
                _,
            ) => {
                let text = format!("invalid number of arguments in \"{name}\" directive of \"otel_exporter\"");
                return Err(Problem::says(text));
            }
            _ => {
                const KNOWN: [&str; 7] =
                    ["endpoint", "protocol", "trusted_certificate", "header", "interval", "batch_size", "batch_count"];
                let problem = Problem::says(format!("unknown directive \"{name}\" in \"otel_exporter\""));
                return Err(match conf_schema::suggest::nearest_word(&name, KNOWN.into_iter()) {
                    Some(near) => problem.hint(format!("did you mean \"{near}\"?")),
                    None => problem.hint(format!("one of: {}", KNOWN.join(", "))),
                });
            }
        }
        Ok(())
    }

    fn finish(self, cx: &mut Cx) -> Result<ExporterBlock, Problem> {
        let text = self.endpoint.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| Problem::says("\"otel_exporter\" requires \"endpoint\""))?;
        let endpoint = Endpoint::parse(&text, self.protocol)
            .map_err(|why| Problem::says(format!("{why} in endpoint \"{text}\" of \"otel_exporter\"")))?;
        let rules = match endpoint.url.tls {
            false => None,
            true => {
                let mut settings = ClientSettings {
                    prefix: "otel",
                    verify: true,
                    verify_depth: VERIFY_DEPTH,
                    addresses: true,
                    ..ClientSettings::default()
                };
                settings.trusted = authorities::trusted_certificates(cx, self.trusted, "otel_exporter")?;
                let rules = ClientRules::build(&settings, &tls_directives::wall_clock(), &mut Vec::new());
                Some(rules.map_err(Problem::says)?)
            }
        };
        let (size, count) = (self.batch_size.unwrap_or(BATCH_SIZE), self.batch_count.unwrap_or(BATCH_COUNT));
        if size.saturating_mul(count) > SPANS_MAX {
            let text = format!("{size} x {count} spans of \"otel_exporter\" exceed the limit of {SPANS_MAX}");
            return Err(Problem::says(text).hint("reduce \"batch_size\" or \"batch_count\""));
        }
        Ok(ExporterBlock {
            endpoint,
            headers: self.headers,
            rules,
            interval: Duration::from_millis(self.interval.unwrap_or(INTERVAL_MS)),
            batch_size: usize::try_from(size).unwrap_or(usize::MAX),
            batch_count: usize::try_from(count).unwrap_or(usize::MAX),
        })
    }
}

/// Checks a field of requests as gRPC does (`grpc_header_key_is_legal`); its name is sent in lower case.
fn header(name: &str, value: &str) -> Result<(String, String), Problem> {
    let name = name.to_ascii_lowercase();
    let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.".contains(&c);
    if name.is_empty() || !name.bytes().all(legal) {
        return Err(Problem::says("\"header\" directive of \"otel_exporter\" has invalid header name").at(0));
    }
    if OWN_FIELDS.contains(&name.as_str()) || name.starts_with("grpc-") || name.ends_with("-bin") {
        let text = format!("\"header\" directive of \"otel_exporter\" must not set \"{name}\"");
        return Err(Problem::says(text).at(0));
    }
    if !value.bytes().all(|c| (b' '..=b'~').contains(&c)) {
        return Err(Problem::says("\"header\" directive of \"otel_exporter\" has invalid header value").at(1));
    }
    Ok((name, value.to_string()))
}
