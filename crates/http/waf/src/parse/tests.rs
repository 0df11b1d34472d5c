use super::*;
use crate::rule::{Disruption, Step};
use crate::source::NoFiles;

fn set(text: &str) -> Result<(Arc<RuleSet>, Vec<RuleWarning>), RuleError> {
    RuleSet::compile(&[RuleText { name: "a.conf".into(), text: text.into() }], &NoFiles)
}

fn error(text: &str) -> String {
    set(text).expect_err(text).to_string()
}

#[test]
fn rules_are_sorted_by_phase_and_markers_are_in_all() {
    let (set, _) =
        set("SecRule ARGS a \"id:1,phase:2,skipAfter:END\"\nSecAction id:2,phase:1\nSecMarker END").expect("set");
    let lengths: Vec<usize> = set.phases.iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 2, 1, 1, 1]);
    assert_eq!(set.rules().map(|rule| (rule.id, rule.phase, rule.line)).collect::<Vec<_>>(), [(2, 1, 2), (1, 2, 1)]);
}

#[test]
fn chains_are_one_rule() {
    let (set, _) =
        set("SecRule ARGS a \"id:1,chain\"\nSecRule ARGS b \"chain\"\nSecRule ARGS c \"setvar:tx.a=1\"").expect("set");
    let [_, phase, ..] = &set.phases;
    assert!(matches!(phase.as_slice(), [Step::Rule(rule)] if rule.links.len() == 3));
}

#[test]
fn later_directives_remove_and_update_rules() {
    let text = "SecRule ARGS a \"id:1,tag:'x'\"\nSecRule ARGS a \"id:2,msg:'m'\"\nSecRule ARGS a \"id:3,deny\"\n\
        SecRuleRemoveByTag x\nSecRuleRemoveByMsg m\nSecRuleUpdateTargetById 3 \"!ARGS:b|REQUEST_COOKIES\"\n\
        SecRuleUpdateActionById 3 \"t:none,t:trim,pass,status:418\"";
    let (set, _) = set(text).expect("set");
    let rules: Vec<_> = set.phases.iter().flatten().collect();
    let [Step::Rule(rule)] = rules.as_slice() else { panic!("one rule") };
    let link = rule.links.first().expect("a link");
    assert_eq!((rule.id, rule.status, link.targets.len(), link.exclusions.len()), (3, Some(418), 2, 1));
    assert!(matches!(rule.disruption, Some(Disruption::Pass)));
    assert_eq!(set.chains.shown(link.chain_node), "t:trim");
}

#[test]
fn errors_name_file_line_column_and_a_suggestion() {
    for (text, expected) in [
        ("\nSecRule ARGS \\\n  \"@rx (\" \"id:1\"", "a.conf:3:9: invalid pattern: missing closing parenthesis"),
        ("SecRule ARGS a", "a.conf:1:9: a rule needs an id; add id:NUMBER to the actions; no other rule may have it"),
        ("SecAction id:1\nSecAction id:1", "a.conf:2:11: the rule at a.conf:1:1 has the id 1 as well"),
        ("SecRuleEngin On", "a.conf:1:1: unknown directive \"SecRuleEngin\"; did you mean SecRuleEngine?"),
        (
            "SecRule ARGS a \"id:1,chain\"",
            "a.conf:1:1: the rule ends with \"chain\", and no rule follows; remove chain, or add the next rule",
        ),
        (
            "SecRule ARGS a \"id:1,chain\"\nSecMarker x",
            "a.conf:2:1: SecMarker follows a rule with \"chain\" (a.conf:1:1); a chain continues with SecRule",
        ),
        ("SecRuleScript a.lua id:1", "a.conf:1:1: SecRuleScript is not supported: a rule must not run a script"),
        (
            "SecRule ARGS @inspectFile \"id:1\"",
            "a.conf:1:14: operator @inspectFile is not supported: a rule must not start a program; uploads are not written to files",
        ),
        ("SecRule ARGS \"! @rxx a b\" \"id:1\"", "a.conf:1:17: unknown operator @rxx; did you mean @rx?"),
        (
            "SecRule ARGS \"@rbl a b\" \"id:1\"",
            "a.conf:1:20: \"a b\" is no name of a list in DNS; write the zone of the list, as @rbl sbl-xbl.spamhaus.org",
        ),
        (
            "Include x",
            "a.conf:1:9: cannot include \"x\": files cannot be included here; a relative name is looked up beside the including file",
        ),
        ("SecUploadKeepFiles On", "a.conf:1:20: uploaded files are not written to disk; write Off"),
        (
            "SecRule ARGS a \"id:1,chain\"\nSecRule ARGS b \"deny\"",
            "a.conf:2:17: a disruptive action belongs to the first rule of a chain",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(error("SecRule ARGS a \"id:1,skipAfter:X\"").contains("no SecMarker \"X\""));
}

#[test]
fn accepted_directives_without_an_effect_are_warnings() {
    let (set, warnings) = set("SecTmpDir /tmp\nSecRequestBodyJsonDepthLimit 512\nSecArgumentsLimit 5").expect("set");
    let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown.first().map(String::as_str),
        Some("a.conf:1:1: SecTmpDir has no effect: the engine writes no files")
    );
    assert_eq!((shown.len(), set.settings.arguments_limit), (2, 5));
}

#[test]
fn default_transformations_precede_those_without_none() {
    let (set, _) = set(
        "SecDefaultAction \"phase:2,pass,log,t:lowercase\"\nSecRule ARGS a \"id:1,t:trim\"\nSecRule ARGS a \"id:2,t:none,t:trim\"",
    )
    .expect("set");
    let nodes: Vec<String> = set
        .phases
        .iter()
        .flatten()
        .filter_map(|step| match step {
            Step::Rule(rule) => Some(set.chains.shown(rule.links.first()?.chain_node)),
            Step::Marker => None,
        })
        .collect();
    assert_eq!(nodes, ["t:lowercase,t:trim", "t:trim"]);
}

#[test]
fn updates_that_meet_no_rule_are_warnings() {
    let rule = "SecRule ARGS a \"id:5,phase:1,pass,tag:known,msg:'Known'\"\n";
    let shown = |text: &str| set(text).expect("set").1.iter().map(ToString::to_string).collect::<Vec<String>>();
    for (line, need) in [
        ("SecRuleRemoveById 6", Some("has the id 6")),
        ("SecRuleRemoveById 6-9", Some("has an id from 6 to 9")),
        ("SecRuleRemoveByTag none", Some("has the tag \"none\"")),
        ("SecRuleRemoveByMsg None", Some("has the message \"None\"")),
        ("SecRuleUpdateTargetById 6 !ARGS:b", Some("has the id 6")),
        ("SecRuleUpdateTargetByTag none !ARGS:b", Some("has the tag \"none\"")),
        ("SecRuleUpdateTargetByMsg None !ARGS:b", Some("has the message \"None\"")),
        ("SecRuleUpdateActionById 6 deny", Some("has the id 6")),
        ("SecRuleRemoveById 5", None),
        ("SecRuleRemoveById 1-9", None),
        ("SecRuleRemoveByTag known\nSecRuleUpdateTargetByTag known !ARGS:b", None),
        ("SecRuleRemoveByMsg Known", None),
        ("SecRuleUpdateTargetById 5 !ARGS:b", None),
        ("SecRuleUpdateActionById 5 deny", None),
    ] {
        let name = line.split(' ').next().unwrap_or_default();
        let column = name.len() + 2;
        let wanted = need.map(|need| {
            format!("a.conf:2:{column}: {name} has no effect: no rule of this block and its parents {need}")
        });
        assert_eq!(shown(&format!("{rule}{line}")), Vec::from_iter(wanted), "{line}");
        // Rules may come later.
        assert_eq!(shown(&format!("{line}\n{rule}")).len(), usize::from(need.is_some()), "{line}");
    }
    assert_eq!(shown("SecRuleRemoveById 7 5 8\nSecAction \"id:5,phase:1,pass\"").len(), 2, "each id is told");
}

#[test]
fn updates_meet_the_rules_of_parents() {
    let text = |text: &str| [RuleText { name: "a.conf".into(), text: text.into() }];
    let compiled = RuleSet::compile(&text("SecRule ARGS a \"id:5,phase:1,pass\"\nSecRuleRemoveById 5"), &NoFiles);
    let (parent, _) = compiled.expect("set");
    let (_, warnings) = RuleSet::compile_behind(&parent, &text("SecRuleRemoveById 5"), &NoFiles).expect("set");
    assert_eq!(warnings, []);
    let (_, warnings) = RuleSet::compile_behind(&parent, &text("SecRuleRemoveById 6"), &NoFiles).expect("set");
    assert_eq!(warnings.len(), 1);
}
