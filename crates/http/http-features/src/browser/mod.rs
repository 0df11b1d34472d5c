//! browser (nginx: `ngx_http_browser_module`): tells modern and ancient browsers.

use conf_schema::value::{Latest, Text};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Request, browsers};
use http_types::Known;
use memchr::memmem;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct BrowserConf from BrowserInput {
        /// Treats a browser as modern from this version on; `unlisted` applies to all browsers that no line names.
        modern_browser: Modern,
        /// Substrings of `User-Agent` that identify an ancient browser.
        ancient_browser: Ancient,
        /// Value of `$modern_browser` for modern browsers.
        modern_browser_value: Latest<Text> = "1",
        /// Value of `$ancient_browser` for ancient browsers.
        ancient_browser_value: Latest<Text> = "1",
    }
}

/// A browser: name, bytes of `User-Agent` before its mark, the mark, and the offset of the version.
struct Mark {
    name: &'static str,
    skip: usize,
    word: &'static [u8],
    version: usize,
}

/// In search order: Opera claims to be MSIE, too.
static MARKS: [Mark; 5] = [
    Mark { name: "opera", skip: 0, word: b"Opera", version: 6 },
    Mark { name: "msie", skip: 25, word: b"MSIE ", version: 5 },
    Mark { name: "gecko", skip: 13, word: b"rv:", version: 3 },
    Mark { name: "safari", skip: 13, word: b"Safari/", version: 7 },
    Mark { name: "konqueror", skip: 25, word: b"Konqueror/", version: 10 },
];

const PART_MAX: u64 = 1_000_000_000;

/// A version as one number: two digits per part after the first, as in nginx.
fn version(text: &[u8]) -> Option<u64> {
    let (mut whole, mut part, mut scale) = (0, 0, 1_000_000);
    for &c in text {
        match c {
            b'0'..=b'9' => part = (part * 10 + u64::from(c - b'0')).min(PART_MAX),
            b'.' => {
                whole += part * scale;
                (part, scale) = (0, scale / 100);
            }
            _ => return None,
        }
    }
    Some(whole + part * scale)
}

#[derive(Clone, Debug, Default)]
pub struct Modern {
    listed: Vec<(usize, u64)>,
    unlisted: bool,
}

impl ValueKind for Modern {
    const SYNTAX: &'static str = "browser version | unlisted";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |index: usize| d.args.get(index).map(|w| w.text().into_owned());
        let (Some(name), least) = (word(0), word(1)) else { return Err(Problem::invalid()) };
        let Some(least) = least else {
            return match name.as_str() {
                "unlisted" => Ok(Modern { listed: Vec::new(), unlisted: true }),
                _ => Err(Problem::invalid().at(0).hint("a browser with a version, or \"unlisted\"")),
            };
        };
        let Some(mark) = MARKS.iter().position(|mark| name.eq_ignore_ascii_case(mark.name)) else {
            let known: Vec<&str> = MARKS.iter().map(|mark| mark.name).collect();
            let hint = format!("one of: {}", known.join(", "));
            return Err(Problem::says(format!("unknown browser name \"{name}\"")).at(0).hint(hint));
        };
        match version(least.as_bytes()) {
            Some(least) => Ok(Modern { listed: vec![(mark, least)], unlisted: false }),
            None => Err(Problem::says(format!("invalid browser version \"{least}\"")).at(1)),
        }
    }
    fn append(&mut self, later: Self) {
        self.listed.extend(later.listed);
        self.unlisted |= later.unlisted;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Ancient {
    words: Vec<Vec<u8>>,
    netscape4: bool,
}

impl ValueKind for Ancient {
    const SYNTAX: &'static str = "string ...";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut ancient = Ancient::default();
        for word in &d.args {
            match word.bytes.as_slice() {
                b"netscape4" => ancient.netscape4 = true,
                other => ancient.words.push(other.to_vec()),
            }
        }
        Ok(ancient)
    }
    fn append(&mut self, later: Self) {
        self.words.extend(later.words);
        self.netscape4 |= later.netscape4;
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("modern_browser", modern_browser, "The value of `modern_browser_value` for modern browsers.")
        .changeable(),
    Builtin::one("ancient_browser", ancient_browser, "The value of `ancient_browser_value` for ancient browsers.")
        .changeable(),
    Builtin::one("msie", msie, "`1` for Internet Explorer of any version.").changeable(),
];

pub struct BrowserFeature;

impl Feature for BrowserFeature {
    fn table(&self) -> FeatureTable {
        BrowserConf::table("browser", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<BrowserConf>() else { return Ok(()) };
        let mut modern = conf.modern_browser.clone().unwrap_or_default();
        modern.listed.sort_by_key(|(mark, _)| *mark);
        block.location.extensions.push(Arc::new(Browsers {
            modern,
            ancient: conf.ancient_browser.clone().unwrap_or_default(),
            modern_value: conf.modern_browser_value.0.0.clone(),
            ancient_value: conf.ancient_browser_value.0.0.clone(),
        }));
        Ok(())
    }
}

struct Browsers {
    modern: Modern,
    ancient: Ancient,
    modern_value: Vec<u8>,
    ancient_value: Vec<u8>,
}

impl Browsers {
    fn is_modern(&self, agent: Option<&[u8]>) -> bool {
        let Some(agent) = agent else { return self.modern.unlisted };
        let listed = &self.modern.listed;
        if !listed.is_empty() {
            // An unlisted Opera poses as another browser.
            let opera = listed.iter().any(|(mark, _)| *mark == 0);
            let unlisted = [(0, u64::MAX)];
            let all = if opera { [].as_slice() } else { &unlisted }.iter().chain(listed);
            for (mark, least) in all {
                if let Some(version) = MARKS.get(*mark).and_then(|mark| mark.version_of(agent)) {
                    return version >= *least;
                }
            }
            if !self.modern.unlisted {
                return false;
            }
        }
        let netscape4 = agent.len() > 13
            && agent.starts_with(b"Mozilla/")
            && agent.get(8).is_some_and(|digit| (b'1'..=b'4').contains(digit));
        if (self.ancient.netscape4 && netscape4)
            || self.ancient.words.iter().any(|word| memmem::find(agent, word).is_some())
        {
            return false;
        }
        self.modern.unlisted
    }
}

impl Mark {
    fn version_of(&self, agent: &[u8]) -> Option<u64> {
        let rest = agent.get(self.skip..).filter(|rest| !rest.is_empty())?;
        let at = memmem::find(rest, self.word)?;
        let text = rest.get(at + self.version..).filter(|text| !text.is_empty())?;
        let end = text.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(text.len());
        version(text.get(..end)?)
    }
}

fn value(r: &Request, modern: bool, out: &mut Vec<u8>) -> bool {
    let Some(browsers) = r.loc().ext::<Browsers>() else { return false };
    if browsers.is_modern(r.header(Known::UserAgent)) == modern {
        out.extend_from_slice(if modern { &browsers.modern_value } else { &browsers.ancient_value });
    }
    true
}

fn modern_browser(r: &mut Request, out: &mut Vec<u8>) -> bool {
    value(r, true, out)
}

fn ancient_browser(r: &mut Request, out: &mut Vec<u8>) -> bool {
    value(r, false, out)
}

fn msie(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if browsers::is_msie(r) {
        out.push(b'1');
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_parts() {
        for (text, number) in
            [("1", 1_000_000), ("1.0", 1_000_000), ("7.50", 7_500_000), ("1.8.0.5", 1_080_005), ("", 0)]
        {
            assert_eq!(version(text.as_bytes()), Some(number), "{text}");
        }
        assert_eq!(version(b"1.x"), None);
        assert!(version("9".repeat(40).as_bytes()).is_some());
    }

    #[test]
    fn agents_are_recognised() {
        let opera = "Mozilla/4.0 (compatible; MSIE 6.0; X11; FreeBSD i386) Opera 7.50  [en]";
        let of = |mark: usize, agent: &str| MARKS[mark].version_of(agent.as_bytes());
        assert_eq!(of(0, opera), Some(7_500_000));
        assert_eq!(of(1, opera), Some(6_000_000));
        assert_eq!(of(0, "Opera"), None);
        assert_eq!(of(4, "Mozilla/5.0 (compatible; Konqueror/3.5; FreeBSD)"), Some(3_050_000));
        assert_eq!(of(1, "MSIE 6.0"), None, "it is looked for where it usually is");
    }
}
