use crate::{Connection, NoFiles, RuleSet, RuleText, Services, Transaction, Transformation};
use std::sync::Arc;
use testkit::Random;

fn pick<'w>(random: &mut Random, words: &[&'w str]) -> &'w str {
    words[random.below(words.len())]
}

const TARGETS: [&str; 22] = [
    "ARGS",
    "ARGS_NAMES",
    "ARGS_GET",
    "ARGS_POST",
    "ARGS:a",
    "ARGS:/b/",
    "&ARGS",
    "REQUEST_HEADERS",
    "REQUEST_HEADERS:User-Agent",
    "REQUEST_COOKIES",
    "REQUEST_COOKIES_NAMES",
    "REQUEST_URI",
    "REQUEST_FILENAME",
    "REQUEST_LINE",
    "QUERY_STRING",
    "REQUEST_BODY",
    "TX",
    "XML:/*",
    "XML://@*",
    "FILES",
    "ARGS|!ARGS:a",
    "MATCHED_VARS",
];
const OPERATORS: [&str; 26] = [
    "@rx union\\s+select",
    "@rx (?i)script",
    "@rx [<>=]",
    "@rx ^a+$",
    "@rx (?:;|\\|\\|)\\s*(?:ls|id)",
    "@rx (\\w+)=(\\d)",
    "@rx a(?!b)",
    "@rx \\d",
    "!@rx ^[a-z]*$",
    "@pm select ls passwd",
    "@pm ; |",
    "@pm x yy",
    "@contains or",
    "@streq 1",
    "@beginsWith ab",
    "@endsWith bc",
    "@within a b c x",
    "@containsWord id",
    "@detectSQLi",
    "@detectXSS",
    "@validateByteRange 32-126",
    "@validateByteRange 48-57,97-122",
    "@validateUrlEncoding",
    "@validateUtf8Encoding",
    "@eq 1",
    "@unconditionalMatch",
];
const WORDS: [&str; 40] = [
    "a",
    "b",
    "ab",
    "abc",
    "x",
    "1",
    "17",
    "union",
    "SELECT",
    "select",
    " ",
    "  ",
    "%20",
    "+",
    "%3c",
    "<script>",
    "'",
    "\"",
    " or 1=1--",
    "/*",
    "*/",
    "--",
    "#",
    ";ls",
    "||id",
    "%u003c",
    "\\u003c",
    "&lt;",
    "&",
    "=",
    "/../",
    "/./",
    "%00",
    "%ff",
    "0x41",
    "cat /etc/passwd",
    "c^a't",
    "aGVsbG8=",
    "é",
    "json",
];

/// Rules of random targets, transformations and operators, some in chains.
fn random_rules(random: &mut Random) -> String {
    let names: Vec<&str> = Transformation::names().collect();
    let mut text = String::from(
        "SecRuleEngine On\nSecRequestBodyAccess On\nSecAction \"id:1,phase:1,pass,nolog,setvar:tx.a=1,setvar:tx.b=x\"\n\
         SecRule REQUEST_HEADERS:Content-Type \"@contains xml\" \"id:2,phase:1,pass,nolog,ctl:requestBodyProcessor=XML\"\n\
         SecRule REQUEST_HEADERS:Content-Type \"@contains json\" \"id:3,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n",
    );
    let mut chained = false;
    for id in 10..30 {
        let targets: Vec<&str> = (0..=random.below(3_usize)).map(|_| pick(random, &TARGETS)).collect();
        let mut actions = String::new();
        if !chained {
            actions.push_str(&format!("id:{id},phase:{},pass,msg:'%{{MATCHED_VAR}}',", 1 + random.below(2)));
        }
        actions.push_str("setvar:tx.n=+1,t:none");
        for _ in 0..random.below(4) {
            actions.push_str(&format!(",t:{}", pick(random, &names)));
        }
        if random.below(5) == 0 {
            actions.push_str(",multiMatch");
        }
        if random.below(3) == 0 {
            actions.push_str(",capture,logdata:'%{TX.0}'");
        }
        chained = random.below(4) == 0 && id < 29;
        if chained {
            actions.push_str(",chain");
        }
        text.push_str(&format!("SecRule {} \"{}\" \"{actions}\"\n", targets.join("|"), pick(random, &OPERATORS)));
    }
    text.push_str("SecRule TX:n \"@ge 0\" \"id:99,phase:2,pass,msg:'%{TX.n} matches'\"\n");
    text
}

fn random_text(random: &mut Random) -> String {
    (0..random.below(6)).map(|_| pick(random, &WORDS)).collect()
}

/// A request: URI, headers and body.
struct RandomRequest {
    uri: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

fn random_request(random: &mut Random) -> RandomRequest {
    let pairs = |random: &mut Random| -> String {
        let pairs: Vec<String> =
            (0..random.below(5)).map(|_| format!("{}={}", random_text(random), random_text(random))).collect();
        pairs.join("&")
    };
    let uri = format!("/{}?{}&a={}", random_text(random).replace(' ', ""), pairs(random), random_text(random));
    let (kind, body) = match random.below(4) {
        0 => ("application/json", format!("{{\"a\":[{:?},{:?}],\"b\":7}}", random_text(random), random_text(random))),
        1 => (
            "text/xml",
            format!("<r a='{}'>{}</r>", pick(random, &["x", "1", "select"]), pick(random, &["a b", "or", "7"])),
        ),
        2 => (
            "multipart/form-data; boundary=b",
            format!(
                "--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"x\"\r\n\r\n{}\r\n--b--\r\n",
                random_text(random)
            ),
        ),
        _ => ("application/x-www-form-urlencoded", pairs(random)),
    };
    let headers = vec![
        ("Content-Type", kind.to_string()),
        ("User-Agent", random_text(random)),
        ("Cookie", format!("a={}; {}", random_text(random), random_text(random))),
        ("X-Other", random_text(random)),
    ];
    RandomRequest { uri, headers, body }
}

fn evaluate(rules: &Arc<RuleSet>, services: &Arc<Services>, request: &RandomRequest, all_values: bool) -> Vec<String> {
    let connection = Connection { client_address: "192.0.2.1".into(), unique_id: "u".into(), ..Connection::default() };
    let mut transaction = Transaction::new(rules, services, connection);
    if all_values {
        transaction.evaluate_all_values();
    }
    transaction.uri(b"POST", request.uri.as_bytes(), "1.1");
    for (name, value) in &request.headers {
        transaction.request_header(name.as_bytes(), value.as_bytes());
    }
    transaction.request_headers();
    transaction.release_spare_memory();
    transaction.request_body(request.body.as_bytes());
    transaction.log();
    transaction.matches().iter().map(|found| found.log_line()).collect()
}

fn compile(text: &str) -> Arc<RuleSet> {
    let texts = [RuleText { name: "t.conf".into(), text: text.into() }];
    RuleSet::compile(&texts, &NoFiles).unwrap_or_else(|error| panic!("{error}\n{text}")).0
}

#[test]
fn the_screen_leaves_all_matches_as_they_are() {
    let mut random = Random::new(1_431);
    let services = Arc::new(Services::default());
    let mut matches = 0;
    for round in 0..60 {
        let text = random_rules(&mut random);
        let rules = compile(&text);
        for _ in 0..20 {
            let request = random_request(&mut random);
            let screened = evaluate(&rules, &services, &request, false);
            let whole = evaluate(&rules, &services, &request, true);
            assert_eq!(
                screened, whole,
                "round {round}: {} {:?} {}\n{text}",
                request.uri, request.headers, request.body
            );
            matches += screened.len();
        }
    }
    assert!(matches > 5000, "{matches}");
}

#[test]
fn rules_behind_others_match_as_in_one_set() {
    let mut random = Random::new(2_431);
    let services = Arc::new(Services::default());
    let updates = [
        "SecRuleRemoveById 12",
        "SecRuleUpdateTargetById 13 \"!ARGS:a\"",
        "SecRuleUpdateTargetById 14 \"REQUEST_HEADERS\"",
        "SecRuleUpdateActionById 15 \"t:none,t:lowercase\"",
        "SecDefaultAction \"phase:2,pass,log,t:trim\"",
        "SecRule ARGS|REQUEST_HEADERS|XML:/* \"@rx x|select\" \"id:200,phase:2,pass,t:lowercase\"",
        "SecRule REQUEST_URI \"@pm or select\" \"id:201,phase:1,pass\"",
        "SecArgumentsLimit 2",
        "SecRuleRemoveById 16 200",
    ];
    for round in 0..40 {
        let first = random_rules(&mut random).replace("t:none", "t:trimLeft");
        let more: Vec<&str> = updates.iter().filter(|_| random.below(3) == 0).copied().collect();
        let last = format!("{}\nSecRuleUpdateTargetById 201 \"ARGS\"\n", pick(&mut random, &updates));
        let mut first = first;
        // An update of the parent means rules of the child as well.
        first.push_str("SecRuleUpdateTargetById 200 \"!ARGS:/b/\"\n");
        let whole = compile(&format!(
            "{first}{}\n{}",
            more.join("\n"),
            if more.iter().any(|line| last.starts_with(line)) { "" } else { &last }
        ));
        let parent = compile(&first);
        let text = |text: String| [RuleText { name: "t.conf".into(), text }];
        let (child, _) = RuleSet::compile_behind(&parent, &text(more.join("\n")), &NoFiles).expect("rules");
        let child = match more.iter().any(|line| last.starts_with(line)) {
            true => child,
            false => RuleSet::compile_behind(&child, &text(last), &NoFiles).expect("rules").0,
        };
        for _ in 0..10 {
            let request = random_request(&mut random);
            // Lines of the rules differ, since the texts begin at other lines.
            let without_lines = |lines: Vec<String>| -> Vec<String> {
                let line = |text: String| {
                    text.split("[line ").map(|part| part.split_once("] ").map_or(part, |(_, rest)| rest)).collect()
                };
                lines.into_iter().map(line).collect()
            };
            let expected = without_lines(evaluate(&whole, &services, &request, true));
            let found = without_lines(evaluate(&child, &services, &request, false));
            assert_eq!(
                found,
                expected,
                "round {round}: {} {}\n{first}\n{}",
                request.uri,
                request.body,
                more.join("\n")
            );
        }
    }
}

#[test]
fn rules_of_a_parent_that_stay_are_shared() {
    let parent =
        compile("SecRuleEngine On\nSecRule ARGS abc \"id:1,phase:2,pass\"\nSecRule ARGS def \"id:2,phase:2,pass\"");
    let texts = [RuleText {
        name: "u.conf".into(),
        text: "SecRuleUpdateTargetById 2 \"!ARGS:x\"\nSecRule ARGS x \"id:3,phase:2,deny\"".into(),
    }];
    let (child, _) = RuleSet::compile_behind(&parent, &texts, &NoFiles).expect("rules");
    let rules = |set: &RuleSet| -> Vec<Arc<crate::rule::Rule>> {
        let steps = set.phases[1].iter();
        steps
            .filter_map(|step| if let crate::rule::Step::Rule(rule) = step { Some(rule.clone()) } else { None })
            .collect()
    };
    let (of_parent, of_child) = (rules(&parent), rules(&child));
    assert!(Arc::ptr_eq(&of_parent[0], &of_child[0]));
    assert!(!Arc::ptr_eq(&of_parent[1], &of_child[1]));
    let condition = |rule: &crate::rule::Rule| rule.links[0].condition.clone().expect("a condition");
    assert!(Arc::ptr_eq(&condition(&of_parent[1]), &condition(&of_child[1])));
    assert!(Arc::ptr_eq(&parent.screens[0], &child.screens[0]));
    assert_eq!((parent.screens.len(), child.screens.len()), (1, 2));
    let ids: Vec<u64> = child.rules().map(|rule| rule.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    let again = [RuleText { name: "u.conf".into(), text: "SecAction \"id:1,phase:1,pass\"".into() }];
    let error = RuleSet::compile_behind(&parent, &again, &NoFiles).expect_err("an id twice");
    assert!(error.reason.contains("has the id 1 as well"), "{error}");
}
