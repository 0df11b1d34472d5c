//! Bodies of fuzz targets, which `cargo test` runs with a seed as well.

use crate::{Connection, ExhaustedAction, NoFiles, RuleSet, RuleText, Services, Transaction, Transformation};
use std::sync::{Arc, OnceLock};

/// Rules behind those of an input.
const INNER_RULES: &str = "SecRule ARGS|REQUEST_COOKIES \"@pm c e\" \"id:900,phase:2,pass,t:lowercase,setvar:tx.a=+1\"\n\
    SecRuleUpdateTargetById 1 \"!ARGS:b\"\nSecRule TX:a \"@gt 0\" \"id:901,phase:2,pass\"\n";

/// A request for rules of an input.
const RULES_REQUEST: &[u8] = b"\x00POST\n/a?b=%63&d=e\nHost: x\nCookie: a=b\n\nf=g";

/// Compiles bytes as rules, and evaluates a request with them, also with further rules behind them.
pub fn seclang(input: &[u8]) {
    let text = |name: &str, text: String| RuleText { name: name.into(), text };
    let outer = text("fuzz.conf", String::from_utf8_lossy(input).into_owned());
    let inner = text("inner.conf", INNER_RULES.into());
    match RuleSet::compile(std::slice::from_ref(&outer), &NoFiles) {
        Ok((rules, _)) => {
            evaluate_twice(&rules, RULES_REQUEST);
            let behind = RuleSet::compile_behind(&rules, std::slice::from_ref(&inner), &NoFiles);
            let whole = RuleSet::compile(&[outer, inner], &NoFiles);
            match (behind, whole) {
                (Ok((behind, _)), Ok((whole, _))) => {
                    let behind = evaluate(&behind, RULES_REQUEST, false);
                    assert_equal(&behind, &evaluate(&whole, RULES_REQUEST, true));
                }
                (behind, whole) => assert_eq!(behind.err(), whole.err()),
            }
        }
        Err(error) => assert!(error.place.line > 0 && error.place.column > 0 && !error.reason.is_empty(), "{error}"),
    }
}

/// Rules that use every transformation and most variables.
fn request_rules() -> &'static Arc<RuleSet> {
    static RULES: OnceLock<Arc<RuleSet>> = OnceLock::new();
    RULES.get_or_init(|| {
        let mut text = String::from(
            "SecRuleEngine On\nSecRequestBodyAccess On\nSecResponseBodyAccess On\nSecAuditEngine On\nSecAuditLogFormat JSON\n\
             SecAction \"id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR},setvar:ip.n=+1\"\n\
             SecRule REQUEST_HEADERS:X-Body \"@rx ^(JSON|XML)$\" \"id:2,phase:1,pass,capture,chain\"\n\
             SecRule TX:1 \"@streq JSON\" \"t:none,ctl:requestBodyProcessor=JSON\"\n\
             SecRule REQUEST_HEADERS:X-Body \"@streq XML\" \"id:3,phase:1,pass,ctl:requestBodyProcessor=XML\"\n\
             SecRule ARGS|ARGS_NAMES|XML:/*|XML://@*|FILES|FILES_SIZES \"@detectSQLi\" \"id:4,phase:2,pass,capture,logdata:'%{TX.0}'\"\n\
             SecRule ARGS|REQUEST_COOKIES|REQUEST_HEADERS \"@detectXSS\" \"id:5,phase:2,pass,capture\"\n\
             SecRule ARGS|REQUEST_BODY|MULTIPART_PART_HEADERS \"@rx (\\w+)=(?!x)\" \"id:6,phase:2,pass,capture,multiMatch,t:urlDecodeUni,t:lowercase\"\n\
             SecRule ARGS \"@validateUtf8Encoding\" \"id:7,phase:2,pass,setvar:'tx.n_%{MATCHED_VAR_NAME}=+1'\"\n\
             SecRule ARGS|ARGS_NAMES|REQUEST_COOKIES \"@rx [<>=;]\\s*\\w|union\\s+select\" \"id:9,phase:2,pass,multiMatch,t:urlDecodeUni,t:htmlEntityDecode\"\n\
             SecRule ARGS|FILES|XML:/* \"@validateByteRange 32-126\" \"id:10,phase:2,pass,t:cmdLine\"\n\
             SecRule ARGS|REQUEST_HEADERS \"@contains or\" \"id:11,phase:2,pass,capture,chain\"\n\
             SecRule MATCHED_VARS \"@rx [0-9a-f]{2,}\" \"t:hexEncode,setvar:tx.b=+1\"\n\
             SecRule MULTIPART_STRICT_ERROR|REQBODY_ERROR \"@eq 1\" \"id:8,phase:2,pass,msg:'%{REQBODY_ERROR_MSG}'\"\n",
        );
        for (name, id) in Transformation::names().zip(100..) {
            text.push_str(&format!("SecRule ARGS|REQUEST_URI_RAW \"@pm a b\" \"id:{id},phase:2,pass,t:none,t:{name}\"\n"));
        }
        let texts = [RuleText { name: "request.conf".into(), text }];
        match RuleSet::compile(&texts, &NoFiles) {
            Ok((rules, _)) => rules,
            Err(error) => panic!("{error}"),
        }
    })
}

/// Evaluates bytes as a request: a flag, the method, the URI, headers, an empty line and the body, a line each.
pub fn waf_request(input: &[u8]) {
    let transaction = evaluate_twice(request_rules(), input);
    assert!(transaction.matches().iter().all(|found| found.log_line().is_ascii()));
    assert!(transaction.audit_text("boundary").ends_with('\n'));
}

/// Compares the matches of two evaluations. A budget may end at another rule, depending on the processor.
fn assert_equal(one: &Transaction, other: &Transaction) {
    let lines = |transaction: &Transaction| -> Vec<String> {
        transaction.matches().iter().map(|found| found.log_line()).collect()
    };
    if !one.is_exhausted() && !other.is_exhausted() {
        assert_eq!(lines(one), lines(other));
        assert_eq!(one.verdict(), other.verdict());
    }
}

/// Evaluates a request with and without the screen: it must not change the matches.
fn evaluate_twice(rules: &Arc<RuleSet>, input: &[u8]) -> Transaction {
    let screened = evaluate(rules, input, false);
    assert_equal(&screened, &evaluate(rules, input, true));
    screened
}

fn evaluate(rules: &Arc<RuleSet>, input: &[u8], all_values: bool) -> Transaction {
    static SERVICES: OnceLock<Arc<Services>> = OnceLock::new();
    let services =
        SERVICES.get_or_init(|| Arc::new(Services { exhausted: ExhaustedAction::Deny(503), ..Services::default() }));
    let (_, rest) = input.split_first().unwrap_or((&0, &[]));
    let end = rest.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = match end {
        Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 2..).unwrap_or_default()),
        None => (rest, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let connection = Connection { client_address: "192.0.2.1".into(), ..Connection::default() };
    let mut transaction = Transaction::new(rules, services, connection);
    if all_values {
        transaction.evaluate_all_values();
    }
    let method = lines.next().unwrap_or_default();
    transaction.uri(method, lines.next().unwrap_or_default(), "1.1");
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        transaction.request_header(name, value.get(1..).unwrap_or_default().trim_ascii());
    }
    transaction.request_headers();
    transaction.request_body(body);
    transaction.response_header(b"Content-Type", b"text/html");
    transaction.response_headers(200, "HTTP/1.1");
    transaction.response_body(body);
    transaction.log();
    transaction
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    /// Inputs made of words of the language, so that random ones get past the first byte.
    fn phrase(random: &mut Random, words: &[&str]) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..random.below(24) {
            match random.below(4) {
                0 => text.push(random.below(256) as u8),
                _ => text.extend_from_slice(words[random.below(words.len() as u64) as usize].as_bytes()),
            }
        }
        text
    }

    #[test]
    fn random_rules_and_requests_keep_the_invariants() {
        let mut random = Random::new(55);
        let rule_words = [
            "SecRule ",
            "ARGS",
            "|",
            "!",
            "&",
            ":",
            "/a/",
            "\"@rx ",
            "(a)",
            "\" ",
            "\"id:1",
            ",phase:1",
            ",chain",
            "t:trim",
            "\"\n",
            "SecAction ",
            "SecMarker x\n",
            "\\\n",
            "%{tx.a}",
            ",setvar:tx.a=1",
            "XML:/*",
            "@pm ",
            "'",
            "SecRuleEngine On\n",
        ];
        let request_words = [
            "\n",
            "\n\n",
            "POST\n",
            "/?a=",
            "%41",
            "%u0041",
            "Content-Type: multipart/form-data; boundary=b\n",
            "--b\r\n",
            "Content-Disposition: form-data; name=\"a\"; filename=\"b\"\r\n",
            "\r\n",
            "--b--",
            "X-Body: XML\n",
            "X-Body: JSON\n",
            "<a b='c'>",
            "</a>",
            "{\"a\":[",
            "]}",
            "Cookie: a=b; c\n",
            "&",
            "<script>",
            "' or 1=1--",
        ];
        for _ in 0..400 {
            seclang(&phrase(&mut random, &rule_words));
            waf_request(&phrase(&mut random, &request_words));
        }
    }
}
