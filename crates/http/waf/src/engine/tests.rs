use super::*;
use crate::source::{NoFiles, RuleText};

struct FixedClock(std::sync::atomic::AtomicU64);

impl WallClock for FixedClock {
    fn now(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn set(rules: &str) -> Arc<RuleSet> {
    let text = format!("SecRuleEngine On\nSecRequestBodyAccess On\n{rules}");
    let texts = [RuleText { name: "t.conf".into(), text }];
    RuleSet::compile(&texts, &NoFiles).unwrap_or_else(|error| panic!("{error}")).0
}

fn services() -> Services {
    let clock = FixedClock(std::sync::atomic::AtomicU64::new(1_000_000_000_000));
    Services { clock: Arc::new(clock), ..Services::default() }
}

fn begin(rules: &str) -> Transaction {
    let connection = Connection { client_address: "192.0.2.1".into(), unique_id: "u1".into(), ..Connection::default() };
    Transaction::new(&set(rules), &Arc::new(services()), connection)
}

/// Runs a request through phases 1, 2 and 5; returns the ids of matches.
fn request(transaction: &mut Transaction, uri: &str, headers: &[(&str, &str)], body: &str) -> Vec<u64> {
    transaction.uri(b"POST", uri.as_bytes(), "1.1");
    for (name, value) in headers {
        transaction.request_header(name.as_bytes(), value.as_bytes());
    }
    if transaction.request_headers() == Verdict::Pass {
        transaction.request_body(body.as_bytes());
    }
    transaction.log();
    transaction.matches().iter().map(|found| found.id).collect()
}

fn ids(rules: &str, uri: &str) -> Vec<u64> {
    request(&mut begin(rules), uri, &[], "")
}

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

#[test]
fn a_rule_denies_with_its_status() {
    let mut transaction = begin("SecRule ARGS:a \"@streq x\" \"id:1,phase:1,deny,status:418\"");
    assert_eq!(request(&mut transaction, "/?a=x", &[], ""), [1]);
    assert_eq!(transaction.verdict(), &Verdict::Deny { status: 418, rule: 1 });
    let mut detection = begin("SecRuleEngine DetectionOnly\nSecRule ARGS:a \"@streq x\" \"id:1,phase:1,deny\"");
    assert_eq!(request(&mut detection, "/?a=x", &[], ""), [1]);
    assert_eq!(detection.verdict(), &Verdict::Pass);
}

#[test]
fn block_uses_the_default_action() {
    let mut transaction =
        begin("SecDefaultAction \"phase:1,deny,status:406,log\"\nSecRule ARGS a \"id:1,phase:1,block\"");
    request(&mut transaction, "/?x=a", &[], "");
    assert_eq!(transaction.verdict(), &Verdict::Deny { status: 406, rule: 1 });
}

#[test]
fn redirects_and_drops_are_verdicts() {
    let mut transaction = begin("SecRule ARGS a \"id:1,phase:1,redirect:'http://x/%{ARGS.q}'\"");
    request(&mut transaction, "/?q=a", &[], "");
    assert_eq!(transaction.verdict(), &Verdict::Redirect { status: 302, location: b"http://x/a".to_vec(), rule: 1 });
    let mut transaction = begin("SecRule ARGS a \"id:1,phase:1,drop\"");
    request(&mut transaction, "/?q=a", &[], "");
    assert_eq!(transaction.verdict(), &Verdict::Drop { rule: 1 });
}

#[test]
fn a_chain_matches_only_as_a_whole() {
    let rules = "SecRule ARGS:a \"@rx ^(\\d+)$\" \"id:1,phase:1,pass,capture,chain\"\nSecRule TX:1 \"@gt 5\" \"setvar:tx.big=1\"\n\
        SecRule TX:big \"@eq 1\" \"id:2,phase:2,pass\"";
    assert_eq!(ids(rules, "/?a=9"), [1, 2]);
    assert_eq!(ids(rules, "/?a=3"), [] as [u64; 0]);
}

#[test]
fn exclusions_counts_and_patterns_select_values() {
    assert_eq!(ids("SecRule ARGS|!ARGS:b x \"id:1,phase:1,pass\"", "/?b=x"), [] as [u64; 0]);
    assert_eq!(ids("SecRule ARGS|!ARGS:b x \"id:1,phase:1,pass\"", "/?c=x"), [1]);
    assert_eq!(ids("SecRule &ARGS \"@eq 2\" \"id:1,phase:1,pass\"", "/?a=1&b=2"), [1]);
    assert_eq!(ids("SecRule ARGS:/^A/ x \"id:1,phase:1,pass\"", "/?ab=x&cd=x"), [1]);
    assert_eq!(ids("SecRule &ARGS:b \"@eq 0\" \"id:1,phase:1,pass\"", "/?a=1"), [1]);
}

#[test]
fn controls_remove_rules_and_targets() {
    let rules = |control: &str| {
        format!(
            "SecAction \"id:9,phase:1,pass,nolog,ctl:{control}\"\nSecRule ARGS|REQUEST_URI x \"id:1,phase:1,pass,tag:'t',msg:'m'\""
        )
    };
    for control in
        ["ruleRemoveById=1", "ruleRemoveById=0-5", "ruleRemoveByTag=t", "ruleRemoveByMsg=m", "ruleEngine=Off"]
    {
        assert_eq!(ids(&rules(control), "/?a=x"), [] as [u64; 0], "{control}");
    }
    let target = rules("ruleRemoveTargetById=1;ARGS:a").replace("|REQUEST_URI", "");
    assert_eq!(ids(&target, "/?a=x"), [] as [u64; 0]);
    assert_eq!(ids(&target, "/?b=x"), [1]);
    assert_eq!(ids(&rules("ruleRemoveTargetByTag=t;ARGS"), "/?a=x"), [1]);
}

#[test]
fn skips_and_markers_leave_rules_out() {
    let rules = "SecAction id:1,phase:1,pass,nolog,skip:1\nSecAction id:2,phase:1,pass\nSecAction id:3,phase:1,pass,skipAfter:END\n\
        SecAction id:4,phase:1,pass\nSecMarker END\nSecAction id:5,phase:1,pass";
    assert_eq!(ids(rules, "/"), [3, 5]);
}

#[test]
fn allow_ends_a_phase_or_the_request() {
    let rules = |allow: &str| {
        format!(
            "SecAction id:1,phase:1,nolog,{allow}\nSecAction id:2,phase:1,pass\nSecAction id:3,phase:2,pass\nSecAction id:4,phase:5,pass"
        )
    };
    assert_eq!(ids(&rules("allow:phase"), "/"), [3, 4]);
    assert_eq!(ids(&rules("allow:request"), "/"), [4]);
    assert_eq!(ids(&rules("allow"), "/"), [4]);
}

#[test]
fn multi_match_tests_every_change() {
    let rules = "SecRule ARGS \"@streq A \" \"id:1,phase:1,pass,t:none,t:trim,t:lowercase,multiMatch\"";
    assert_eq!(ids(rules, "/?a=A+"), [1]);
    assert_eq!(ids(&rules.replace(",multiMatch", ""), "/?a=A+"), [] as [u64; 0]);
}

#[test]
fn bodies_become_arguments() {
    let rules = "SecRule ARGS_POST:a \"@streq x\" \"id:1,phase:2,pass\"\nSecRule REQBODY_ERROR \"!@eq 0\" \"id:2,phase:2,pass\"\n\
        SecRule REQUEST_HEADERS:Content-Type json \"id:3,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n\
        SecRule REQUEST_HEADERS:Content-Type xml \"id:4,phase:1,pass,nolog,ctl:requestBodyProcessor=XML\"\n\
        SecRule ARGS:json.a.array_0 x \"id:5,phase:2,pass\"\nSecRule XML:/* x \"id:6,phase:2,pass\"\nSecRule XML://@* y \"id:7,phase:2,pass\"\n\
        SecRule FILES evil \"id:8,phase:2,pass\"\nSecRule FILES_SIZES \"@eq 3\" \"id:9,phase:2,pass\"";
    assert_eq!(request(&mut begin(rules), "/", &[FORM], "a=x"), [1]);
    assert_eq!(request(&mut begin(rules), "/", &[("Content-Type", "application/json")], "{\"a\":[\"x\"]}"), [5]);
    assert_eq!(request(&mut begin(rules), "/", &[("Content-Type", "application/json")], "{"), [2]);
    assert_eq!(request(&mut begin(rules), "/", &[("Content-Type", "text/xml")], "<a b='y'>x</a>"), [6, 7]);
    let body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"evil\"\r\n\r\nabc\r\n--b\r\nContent-Disposition: \
        form-data; name=\"a\"\r\n\r\nx\r\n--b--\r\n";
    assert_eq!(
        request(&mut begin(rules), "/", &[("Content-Type", "multipart/form-data; boundary=b")], body),
        [1, 8, 9]
    );
}

#[test]
fn a_document_that_was_read_is_not_repeated_as_text() {
    let rules = |control: &str| {
        format!(
            "SecAction \"id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=XML{control}\"\nSecRule REQUEST_BODY x \"id:2,pass\""
        )
    };
    assert_eq!(request(&mut begin(&rules("")), "/", &[], "<a>x</a>"), [] as [u64; 0]);
    assert_eq!(request(&mut begin(&rules("")), "/", &[], "<a>x"), [2]);
    assert_eq!(request(&mut begin(&rules(",ctl:forceRequestBodyVariable=On")), "/", &[], "<a>x</a>"), [2]);
}

#[test]
fn a_body_over_the_limit_is_rejected_or_cut() {
    let mut transaction = begin("SecRequestBodyLimit 3");
    request(&mut transaction, "/", &[FORM], "abcd");
    assert_eq!(transaction.verdict(), &Verdict::Deny { status: 413, rule: 0 });
    let rules = "SecRequestBodyLimit 3\nSecRequestBodyLimitAction ProcessPartial\nSecRule INBOUND_DATA_ERROR \"@eq 1\" \"id:1,pass\"\n\
        SecRule REQUEST_BODY_LENGTH \"@eq 3\" \"id:2,pass\"";
    assert_eq!(request(&mut begin(rules), "/", &[FORM], "abcd"), [1, 2]);
}

#[test]
fn lasting_collections_count_over_transactions() {
    let rules =
        set("SecAction \"id:1,phase:1,nolog,pass,initcol:ip=%{REMOTE_ADDR},setvar:ip.n=+1,expirevar:ip.n=60\"\n\
        SecRule IP:n \"@gt 2\" \"id:2,phase:2,deny\"");
    let services = Arc::new(services());
    let mut last = Verdict::Pass;
    for _ in 0..3 {
        let connection = Connection { client_address: "192.0.2.1".into(), ..Connection::default() };
        let mut transaction = Transaction::new(&rules, &services, connection);
        request(&mut transaction, "/", &[], "");
        last = transaction.verdict().clone();
    }
    assert_eq!(last, Verdict::Deny { status: 403, rule: 2 });
}

#[test]
fn messages_have_the_form_of_libmodsecurity() {
    let rules = "SecRule ARGS \"@rx (ev.l)\" \"id:7,phase:1,pass,capture,t:none,t:lowercase,msg:'Found %{TX.1}',logdata:'in \
        %{MATCHED_VAR_NAME}',severity:CRITICAL,ver:'v/1',tag:'a\\'b',rev:2,maturity:3,accuracy:4\"";
    let mut transaction = begin(rules);
    request(&mut transaction, "/p?q=EVIL", &[], "");
    let line = transaction.matches().first().expect("a match").log_line();
    assert_eq!(
        line,
        "ModSecurity: Warning. Matched \"Operator `Rx' with parameter `(ev.l)' against variable `ARGS:q' (Value: `EVIL' ) \
         [file \"t.conf\"] [line \"3\"] [id \"7\"] [rev \"2\"] [msg \"Found evil\"] [data \"in ARGS:q\"] [severity \"2\"] \
         [ver \"v/1\"] [maturity \"3\"] [accuracy \"4\"] [tag \"a'b\"] [hostname \"\"] [uri \"/p\"] [unique_id \"u1\"] \
         [ref \"o0,4o0,4v10,4t:lowercase\"]"
    );
}

#[test]
fn an_exhausted_budget_passes_or_denies() {
    let rules = set(
        "SecAction id:1,phase:1,pass,nolog\nSecRule ARGS x \"id:2,phase:1,pass\"\nSecAction id:3,phase:1,pass\nSecAction id:4,phase:5,pass",
    );
    for (exhausted, verdict) in
        [(ExhaustedAction::Pass, Verdict::Pass), (ExhaustedAction::Deny(503), Verdict::Deny { status: 503, rule: 0 })]
    {
        let budget = Budget { steps: 10, ..Budget::default() };
        let services = Arc::new(Services { budget, exhausted, ..services() });
        let mut transaction = Transaction::new(&rules, &services, Connection::default());
        assert_eq!(request(&mut transaction, "/?a=y", &[], ""), [0, 4]);
        assert_eq!(transaction.verdict(), &verdict);
    }
}

#[test]
fn responses_are_inspected() {
    let rules = "SecResponseBodyAccess On\nSecRule RESPONSE_BODY secret \"id:1,phase:4,deny\"\nSecRule RESPONSE_STATUS 200 \"id:2,phase:3,pass\"";
    let mut transaction = begin(rules);
    request(&mut transaction, "/", &[], "");
    transaction.response_header(b"Content-Type", b"text/html; charset=x");
    assert_eq!(transaction.response_headers(200, "HTTP/1.1"), Verdict::Pass);
    assert!(transaction.wants_response_body());
    assert_eq!(transaction.response_body(b"a secret"), Verdict::Deny { status: 403, rule: 1 });
    assert_eq!(transaction.matches().iter().map(|found| found.id).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn variables_of_the_request_line_are_set() {
    for (variable, value) in [
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_LINE", "POST /a%20b/c.php?x=1 HTTP/1.1"),
        ("REQUEST_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_URI", "/a b/c.php?x=1"),
        ("REQUEST_URI_RAW", "/a%20b/c.php?x=1"),
        ("REQUEST_FILENAME", "/a b/c.php"),
        ("REQUEST_BASENAME", "c.php"),
        ("QUERY_STRING", "x=1"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("UNIQUE_ID", "u1"),
        ("ARGS_COMBINED_SIZE", "2"),
        ("TIME_EPOCH", "1000000"),
        ("TIME", "13:46:40"),
        ("HIGHEST_SEVERITY", "255"),
        ("RULE:id", "1"),
    ] {
        let rules = format!("SecRule {variable} \"@streq {value}\" \"id:1,phase:1,pass\"");
        assert_eq!(ids(&rules, "/a%20b/c.php?x=1"), [1], "{variable}");
    }
}

#[test]
fn environment_and_users_are_handed_out() {
    let mut transaction = begin("SecRule REMOTE_USER \"@streq joe\" \"id:1,phase:1,pass,setenv:who=%{REMOTE_USER}\"");
    request(&mut transaction, "/", &[("Authorization", "Basic am9lOnNlY3JldA==")], "");
    assert_eq!(transaction.environment(), [("who".into(), b"joe".to_vec())]);
}

/// Begins a transaction whose caller asks DNS.
fn begin_asking(rules: &str) -> Transaction {
    let connection = Connection { client_address: "192.0.2.1".into(), unique_id: "u1".into(), ..Connection::default() };
    Transaction::new(&set(rules), &Arc::new(Services { asks_names: true, ..services() }), connection)
}

#[test]
fn a_phase_waits_for_answers_of_dns_and_goes_on_where_it_stopped() {
    let rules = "SecAction \"id:1,phase:1,pass,nolog,setvar:tx.before=+1\"\n\
                 SecRule REMOTE_ADDR \"@unconditionalMatch\" \"id:2,phase:1,pass,nolog,setvar:tx.chained=+1,chain\"\n\
                 SecRule MATCHED_VARS|ARGS:h \"@rbl list.example\" \"capture,setvar:'tx.found=%{tx.0}',chain\"\n\
                 SecRule TX:chained \"@eq 1\"\n\
                 SecRule TX:found \"@contains succeeded at ARGS:h\" \"id:3,phase:1,deny,status:406\"";
    let mut transaction = begin_asking(rules);
    transaction.uri(b"GET", b"/?h=Example.com", "1.1");
    assert_eq!(transaction.request_headers(), Verdict::Pass);
    assert_eq!(transaction.wanted_names(), ["1.2.0.192.list.example", "example.com.list.example"]);
    transaction.answer_name("1.2.0.192.list.example", None);
    transaction.answer_name("example.com.list.example", Some([127, 0, 0, 2].into()));
    assert_eq!(transaction.resume(), Verdict::Deny { status: 406, rule: 3 });
    assert!(transaction.wanted_names().is_empty());
    assert_eq!(transaction.resume(), Verdict::Deny { status: 406, rule: 3 });
    let value = |name: &[u8]| transaction.facts.tx.get(name).map(|(_, value)| value.to_vec());
    assert_eq!(value(b"before").as_deref(), Some(&b"1"[..]), "no step ran twice");
    assert_eq!(value(b"chained").as_deref(), Some(&b"1"[..]), "no link ran twice");
}

#[test]
fn a_list_is_not_asked_without_a_caller_that_does_in_late_phases_or_twice() {
    let rule = |phase: u8| format!("SecRule REMOTE_ADDR \"@rbl list.example\" \"id:1,phase:{phase},deny\"");
    let mut transaction = begin(&rule(1));
    transaction.uri(b"GET", b"/", "1.1");
    assert_eq!((transaction.request_headers(), transaction.wanted_names().len()), (Verdict::Pass, 0));
    let mut transaction = begin_asking(&rule(3));
    transaction.uri(b"GET", b"/", "1.1");
    transaction.request_headers();
    transaction.request_body(b"");
    assert_eq!((transaction.response_headers(200, "HTTP/1.1"), transaction.wanted_names().len()), (Verdict::Pass, 0));
    let twice = format!("{}\n{}", rule(1).replace("deny", "pass"), rule(2).replace("id:1", "id:2"));
    let mut transaction = begin_asking(&twice);
    transaction.uri(b"GET", b"/", "1.1");
    transaction.request_headers();
    assert_eq!(transaction.wanted_names().len(), 1);
    transaction.answer_name("1.2.0.192.list.example", Some([127, 0, 0, 2].into()));
    assert_eq!(transaction.resume(), Verdict::Pass);
    assert_eq!(transaction.request_body(b""), Verdict::Deny { status: 403, rule: 2 }, "the answer is remembered");
}

#[test]
fn more_names_than_a_transaction_may_ask_for_end_its_budget() {
    let mut transaction = begin_asking("SecRule ARGS \"@rbl list.example\" \"id:1,phase:1,pass\"");
    let query: Vec<String> = (0..=NAMES_MAX).map(|number| format!("a=host{number}")).collect();
    transaction.uri(b"GET", format!("/?{}", query.join("&")).as_bytes(), "1.1");
    assert_eq!(transaction.request_headers(), Verdict::Deny { status: EXHAUSTED_STATUS, rule: 0 });
    assert!(transaction.wanted_names().is_empty() && transaction.is_exhausted());
}

#[test]
fn a_key_of_project_honey_pot_begins_the_names() {
    let rules = "SecHttpBlKey abcdefghijkl\n\
                 SecRule REMOTE_ADDR \"@rbl dnsbl.httpbl.org\" \"id:1,phase:1,pass,capture,setvar:'tx.m=%{tx.0}'\"\n\
                 SecRule TX:m \"@contains Search Engine\" \"id:2,phase:1,deny\"";
    let mut transaction = begin_asking(rules);
    transaction.uri(b"GET", b"/", "1.1");
    transaction.request_headers();
    assert_eq!(transaction.wanted_names(), ["abcdefghijkl.1.2.0.192.dnsbl.httpbl.org"]);
    transaction.answer_name("abcdefghijkl.1.2.0.192.dnsbl.httpbl.org", Some([127, 5, 0, 0].into()));
    assert_eq!(transaction.resume(), Verdict::Deny { status: 403, rule: 2 });
    let texts = [RuleText { name: "t.conf".into(), text: "SecHttpBlKey short".into() }];
    assert!(RuleSet::compile(&texts, &NoFiles).expect_err("an error").reason.contains("Project Honey Pot"));
}

#[test]
fn a_whole_document_is_taken_from_a_rule_by_its_variable() {
    let document = "<a b=\"attack\">attack</a>";
    let headers = [("Content-Type", "text/xml")];
    let rules = |exclusion: &str| {
        format!(
            "SecAction \"id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=XML{exclusion}\"\n\
             SecRule ARGS|XML:/*|XML://@* \"@contains attack\" \"id:2,phase:2,pass,tag:'t',msg:'m'\""
        )
    };
    let matches = |rules: &str, uri: &str| request(&mut begin(rules), uri, &headers, document);
    assert_eq!(matches(&rules(""), "/"), [2]);
    for exclusion in ["ById=2", "ByTag=t", "ByMsg=m"] {
        let rules = rules(&format!(",ctl:ruleRemoveTarget{exclusion};XML"));
        assert_eq!(matches(&rules, "/"), [0_u64; 0], "{exclusion}");
        assert_eq!(matches(&rules, "/?a=attack"), [2], "{exclusion}");
    }
    assert_eq!(matches(&format!("{}\nSecRuleUpdateTargetById 2 \"!XML\"", rules("")), "/"), [0_u64; 0]);
    assert_eq!(matches(&rules(",ctl:ruleRemoveTargetById=2;XML:/*"), "/"), [2], "attributes remain");
}

#[test]
fn preparation_compiles_the_patterns_of_ordinary_requests_alone() {
    let rules = set("SecRule ARGS \"@rx ^[a-z]+$\" \"id:1,phase:2,deny\"\n\
                     SecRule ARGS \"@rx never<>seen[0-9]\" \"id:2,phase:2,deny\"\n\
                     SecRule ARGS \"@rx ^[0-9]$\" \"id:3,phase:2,deny\"");
    let compiled = || {
        let links = rules.phases.iter().flatten().filter_map(|step| match step {
            crate::rule::Step::Rule(rule) => rule.links.first(),
            crate::rule::Step::Marker => None,
        });
        let patterns = links.filter_map(|link| match &link.condition.as_ref()?.operator {
            crate::operator::Operator::Pattern { compiled, .. } => compiled.clone(),
            _ => None,
        });
        patterns.map(|pattern| pattern.is_compiled()).collect::<Vec<bool>>()
    };
    assert_eq!(compiled(), [false, false, false]);
    prepare_patterns(&rules);
    assert_eq!(compiled(), [true, false, true], "a refusal leaves out no rule");
}

#[test]
fn parameters_beyond_the_limit_are_an_error_of_the_body() {
    const RULES: &str = "SecArgumentsLimit 3\nSecAction \"id:9,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n\
        SecRule REQBODY_ERROR \"!@eq 0\" \"id:1,phase:2,deny,status:400,logdata:'%{reqbody_error_msg}'\"";
    let form = RULES.replace("pass,nolog,ctl:requestBodyProcessor=JSON", "pass,nolog");
    let part = |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nx\r\n");
    let parts = |names: &[&str]| names.iter().map(|name| part(name)).collect::<String>() + "--b--\r\n";
    let multipart = ("Content-Type", "multipart/form-data; boundary=b");
    for (rules, uri, header, body, is_refused) in [
        (form.as_str(), "/?a=1&b=2&c=3", FORM, String::new(), false),
        (&form, "/?a=1&b=2&c=3&d=4", FORM, String::new(), true),
        (&form, "/", FORM, "a=1&b=2&c=3".into(), false),
        (&form, "/", FORM, "a=1&b=2&c=3&d=4".into(), true),
        (&form, "/?a=1", FORM, "b=2&c=3&d=4".into(), true),
        (&form, "/", multipart, parts(&["a", "b", "c"]), false),
        (&form, "/", multipart, parts(&["a", "b", "c", "d"]), true),
        (RULES, "/", FORM, "[1,2,3]".into(), false),
        (RULES, "/", FORM, "[1,2,3,4]".into(), true),
        (RULES, "/?a=1&b=2&c=3", FORM, "7".into(), true),
    ] {
        let mut transaction = begin(rules);
        request(&mut transaction, uri, &[header], &body);
        let verdict = if is_refused { Verdict::Deny { status: 400, rule: 1 } } else { Verdict::Pass };
        assert_eq!(transaction.verdict(), &verdict, "{uri} {body}");
        if is_refused {
            let text = transaction.audit_text("b");
            assert!(text.contains("More than 3 parameters (SecArgumentsLimit)."), "{text}");
        }
    }
}

#[test]
fn recommended_rules_refuse_as_many_parameters_as_the_limit() {
    let rules = crate::RECOMMENDED_SETTINGS;
    let (set, _) =
        RuleSet::compile(&[RuleText { name: "t".into(), text: rules.into() }], &NoFiles).expect("recommended settings");
    assert_eq!(set.settings.arguments_limit, 1000);
    for (count, verdict) in [(999, Verdict::Pass), (1000, Verdict::Deny { status: 400, rule: 200_007 })] {
        let mut transaction = begin(rules);
        request(&mut transaction, &format!("/?{}", "a=1&".repeat(count)), &[], "");
        assert_eq!(transaction.verdict(), &verdict, "{count}");
    }
}

#[test]
fn recommended_rules_say_why_a_body_is_refused() {
    let mut transaction = begin(&format!("SecAuditLogFormat JSON\n{}", crate::RECOMMENDED_SETTINGS));
    request(&mut transaction, "/", &[("Content-Type", "application/json")], "{\"a\":");
    assert_eq!(transaction.verdict(), &Verdict::Deny { status: 400, rule: 200_002 });
    assert!(transaction.audit_text("b").contains("JSON parsing error: EOF"), "{}", transaction.audit_text("b"));
    let mut transaction = begin(crate::RECOMMENDED_SETTINGS);
    let body = "x\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n";
    request(&mut transaction, "/", &[("Content-Type", "multipart/form-data; boundary=b")], body);
    assert_eq!(transaction.verdict(), &Verdict::Deny { status: 400, rule: 200_003 });
    let text = transaction.audit_text("b");
    assert!(text.contains("BQ 0, BW 0, DB 1, DA 0, HF 0"), "{text}");
}
