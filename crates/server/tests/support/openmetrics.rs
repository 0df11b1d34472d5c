//! A strict reader of OpenMetrics 1.0: refuses what a scraper might misread.

#![allow(dead_code, reason = "every test file uses another part")]

use std::collections::{BTreeMap, HashMap, HashSet};

pub type Labels = BTreeMap<String, String>;

/// Characters of an exemplar's labels at most (OpenMetrics 1.0, "Exemplars").
const EXEMPLAR_CHARACTERS_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    pub labels: Labels,
    pub value: f64,
    pub timestamp: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
    pub exemplar: Option<Exemplar>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub unit: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

/// Reads a page.
///
/// # Errors
/// The line and the rule that it breaks.
pub fn parse(text: &str) -> Result<Vec<Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the page does not end with \"# EOF\"")?;
    let mut families: Vec<Family> = Vec::new();
    let mut names = HashSet::new();
    for line in body.split_terminator('\n') {
        let fails = |why: &str| format!("{why}: {line}");
        if line.is_empty() || line.contains('\r') {
            return Err(fails("an empty line or a carriage return"));
        }
        if let Some(rest) = line.strip_prefix("# ") {
            let (word, rest) = rest.split_once(' ').ok_or_else(|| fails("a comment"))?;
            let (name, value) = rest.split_once(' ').ok_or_else(|| fails("no value"))?;
            if families.last().is_none_or(|family| family.name != name) {
                if !names.insert(name.to_string()) {
                    return Err(fails("a family is repeated"));
                }
                families.push(Family { name: name.into(), ..Family::default() });
            }
            let family = families.last_mut().ok_or("no family")?;
            if !family.samples.is_empty() {
                return Err(fails("metadata behind samples"));
            }
            let place = match word {
                "TYPE" => &mut family.kind,
                "UNIT" => &mut family.unit,
                "HELP" => &mut family.help,
                _ => return Err(fails("unknown metadata")),
            };
            if !place.is_empty() {
                return Err(fails("metadata twice"));
            }
            *place = value.into();
            continue;
        }
        let sample = sample(line).map_err(|why| fails(&why))?;
        let family = families.last_mut().ok_or_else(|| fails("a sample without a family"))?;
        allowed(family, &sample).map_err(|why| fails(&why))?;
        family.samples.push(sample);
    }
    for family in &families {
        whole(family).map_err(|why| format!("{}: {why}", family.name))?;
    }
    Ok(families)
}

/// A name of a metric or a label, and what follows it.
fn name(text: &str, colons: bool) -> Result<(&str, &str), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    if end == 0 || text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("an invalid name".into());
    }
    Ok(text.split_at(end))
}

/// Labels in braces, and what follows them.
fn labels(text: &str) -> Result<(Labels, &str), String> {
    let mut all = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else { return Ok((all, text)) };
    if let Some(rest) = rest.strip_prefix('}') {
        return Ok((all, rest));
    }
    loop {
        let (label, behind) = name(rest, false)?;
        let mut chars = behind.strip_prefix("=\"").ok_or("a label without a quoted value")?.char_indices();
        let (mut value, mut end) = (String::new(), None);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => value.push(match chars.next() {
                    Some((_, '\\')) => '\\',
                    Some((_, '"')) => '"',
                    Some((_, 'n')) => '\n',
                    _ => return Err("an invalid escape".into()),
                }),
                c => value.push(c),
            }
        }
        if all.insert(label.into(), value).is_some() {
            return Err("a label twice".into());
        }
        rest = &behind[2 + end.ok_or("an open quotation mark")? + 1..];
        match rest.split_at_checked(1) {
            Some((",", next)) => rest = next,
            Some(("}", next)) => return Ok((all, next)),
            _ => return Err("labels are not closed".into()),
        }
    }
}

fn number(text: &str) -> Result<f64, String> {
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    match text {
        "+Inf" => Ok(f64::INFINITY),
        _ if !text.is_empty() && text.chars().all(plain) => text.parse().map_err(|_| "no number".into()),
        _ => Err("no number".into()),
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let (found, rest) = name(line, true)?;
    let (all, rest) = labels(rest)?;
    let rest = rest.strip_prefix(' ').ok_or("no space before the value")?;
    let (value, exemplar) = match rest.split_once(" # ") {
        Some((value, exemplar)) => (value, Some(self::exemplar(exemplar)?)),
        None => (rest, None),
    };
    Ok(Sample { name: found.into(), labels: all, value: number(value)?, exemplar })
}

fn exemplar(text: &str) -> Result<Exemplar, String> {
    let (all, rest) = labels(text)?;
    if !text.starts_with('{') {
        return Err("an exemplar without labels".into());
    }
    let characters: usize = all.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    if characters > EXEMPLAR_CHARACTERS_MAX {
        return Err("an exemplar with long labels".into());
    }
    let mut words = rest.strip_prefix(' ').ok_or("an exemplar without a value")?.split(' ');
    let value = number(words.next().unwrap_or_default())?;
    let timestamp = words.next().map(number).transpose()?;
    match words.next() {
        None => Ok(Exemplar { labels: all, value, timestamp }),
        Some(_) => Err("words behind an exemplar".into()),
    }
}

/// Names, exemplars and values that a type permits.
fn allowed(family: &Family, sample: &Sample) -> Result<(), String> {
    let suffix = sample.name.strip_prefix(&family.name).ok_or("a sample of another family")?;
    let suffixes: &[&str] = match family.kind.as_str() {
        "counter" => &["_total", "_created"],
        "gauge" => &[""],
        "histogram" => &["_bucket", "_sum", "_count", "_created"],
        _ => return Err("a type that is not used".into()),
    };
    if !suffixes.contains(&suffix) {
        return Err(format!("a {} has no such sample", family.kind));
    }
    if sample.exemplar.is_some() && !matches!(suffix, "_total" | "_bucket") {
        return Err("an exemplar where none may be".into());
    }
    if (suffix == "_bucket") != sample.labels.contains_key("le") {
        return Err("\"le\" belongs to buckets".into());
    }
    if family.kind != "gauge" && (sample.value < 0.0 || sample.value.is_infinite()) {
        return Err("a counter below 0 or infinite".into());
    }
    Ok(())
}

/// Rules for all samples of a family: unit, groups that are together, complete and cumulative histograms.
fn whole(family: &Family) -> Result<(), String> {
    if family.kind.is_empty() || family.help.is_empty() {
        return Err("no type or no description".into());
    }
    if !family.unit.is_empty() && !family.name.ends_with(&format!("_{}", family.unit)) {
        return Err("the name does not end with the unit".into());
    }
    let mut groups: Vec<(Labels, Vec<&Sample>)> = Vec::new();
    for sample in &family.samples {
        let mut key = sample.labels.clone();
        key.remove("le");
        let at = groups.iter().position(|(known, _)| *known == key);
        match at {
            Some(at) if at + 1 == groups.len() => groups[at].1.push(sample),
            Some(_) => return Err(format!("{key:?} is not together")),
            None => groups.push((key, vec![sample])),
        }
    }
    for (key, samples) in &groups {
        let mut names: HashMap<&str, usize> = HashMap::new();
        samples.iter().for_each(|sample| *names.entry(&sample.name[family.name.len()..]).or_default() += 1);
        let once = |name: &str| names.get(name) == Some(&1);
        let complete = match family.kind.as_str() {
            "counter" => once("_total") && once("_created"),
            "gauge" => once(""),
            _ => once("_sum") && once("_count") && once("_created"),
        };
        if !complete {
            return Err(format!("{key:?} has {names:?}"));
        }
        if family.kind == "histogram" {
            histogram(family, samples).map_err(|why| format!("{key:?} {why}"))?;
        }
    }
    Ok(())
}

fn histogram(family: &Family, samples: &[&Sample]) -> Result<(), String> {
    let of = |suffix: &'static str| samples.iter().filter(move |s| s.name[family.name.len()..] == *suffix);
    let (mut below, mut count) = (f64::NEG_INFINITY, 0.0);
    for bucket in of("_bucket") {
        let bound = number(bucket.labels.get("le").map_or("", String::as_str))?;
        if bound <= below || bucket.value < count {
            return Err("buckets are not in order or not cumulative".into());
        }
        if let Some(exemplar) = &bucket.exemplar
            && (exemplar.value > bound || exemplar.value <= below && below > 0.0)
        {
            return Err(format!("an exemplar of {} in the bucket to {bound}", exemplar.value));
        }
        (below, count) = (bound, bucket.value);
    }
    if below != f64::INFINITY || of("_count").any(|sample| sample.value != count) {
        return Err("no bucket +Inf, or it is not the count".into());
    }
    Ok(())
}

pub fn find<'a>(families: &'a [Family], name: &str, labels: &[(&str, &str)]) -> Option<&'a Sample> {
    let fits = |sample: &&Sample| {
        sample.name == name && labels.iter().all(|(l, v)| sample.labels.get(*l).is_some_and(|found| found == v))
    };
    families.iter().flat_map(|family| &family.samples).find(fits)
}
