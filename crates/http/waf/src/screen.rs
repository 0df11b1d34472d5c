//! Rules that look at the same values share one pass over them: a search for the texts that their operators require.
//! Rules whose texts are in no value are left out without an evaluation. The pass never changes a verdict: what it
//! leaves out could not match.

use crate::operator::{Operator, Requirement, add_byte};
use crate::rule::{Link, Target, TargetSelector};
use crate::variable::Variable;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use hashbrown::HashMap;

/// Texts of a group of rules at most; rules beyond are evaluated as without a pass.
const GROUP_TEXTS_MAX: usize = 20_000;

/// The place of a link in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScreenPlace {
    /// Index of the group in [`crate::RuleSet`].
    pub group: u32,
    /// The link's bit in the group's sets.
    pub bit: u32,
}

/// Links with equal targets and transformations.
#[derive(Debug)]
pub(crate) struct ScreenGroup {
    pub targets: Vec<Target>,
    pub node: u32,
    /// Words of a set of links.
    pub words: usize,
    texts: Option<AhoCorasick>,
    /// The links of each text.
    owners: Vec<Vec<u32>>,
    bytes: Vec<([u64; 4], u32)>,
}

/// A group in the making.
struct GroupDraft {
    targets: Vec<Target>,
    node: u32,
    texts: HashMap<Vec<u8>, Vec<u32>>,
    bytes: Vec<([u64; 4], u32)>,
    links: u32,
}

/// Collects groups while rules are compiled.
#[derive(Default)]
pub(crate) struct ScreenBuilder {
    drafts: Vec<GroupDraft>,
    index: HashMap<String, usize>,
}

/// Variables whose values do not change within a phase.
fn is_steady(variable: Variable) -> bool {
    use Variable as V;
    matches!(
        variable,
        V::Args
            | V::ArgsGet
            | V::ArgsGetNames
            | V::ArgsNames
            | V::ArgsPost
            | V::ArgsPostNames
            | V::Files
            | V::FilesNames
            | V::MultipartFilename
            | V::MultipartName
            | V::MultipartPartHeaders
            | V::PathInfo
            | V::QueryString
            | V::RequestBasename
            | V::RequestBody
            | V::RequestCookies
            | V::RequestCookiesNames
            | V::RequestFilename
            | V::RequestHeaders
            | V::RequestHeadersNames
            | V::RequestLine
            | V::RequestUri
            | V::RequestUriRaw
            | V::ResponseBody
            | V::ResponseHeaders
            | V::ResponseHeadersNames
            | V::Xml
    )
}

fn can_share(link: &Link) -> bool {
    let is_plain = |target: &Target| {
        !target.counts && is_steady(target.variable) && !matches!(target.selector, TargetSelector::Macro(_))
    };
    !link.multi_match && !link.targets.is_empty() && link.targets.iter().all(is_plain)
}

impl ScreenBuilder {
    /// Gives a link its place; `None` if it is always evaluated.
    pub fn place(&mut self, link: &Link) -> Option<ScreenPlace> {
        let condition = link.condition.as_ref().filter(|condition| !condition.negated && can_share(link))?;
        let requirement = match &condition.operator {
            Operator::Pattern { compiled: Some(pattern), .. } => pattern.requirement()?,
            Operator::Phrases(phrases) => phrases.requirement()?,
            _ => return None,
        };
        let mut key = link.chain_node.to_string();
        for target in &link.targets {
            key.push_str(&format!("|{:?} {}", target.variable, target.text));
        }
        let next = self.drafts.len();
        let group = *self.index.entry(key).or_insert(next);
        if group == next {
            let (targets, node) = (link.targets.clone(), link.chain_node);
            self.drafts.push(GroupDraft { targets, node, texts: HashMap::new(), bytes: Vec::new(), links: 0 });
        }
        let draft = self.drafts.get_mut(group)?;
        let bit = draft.links;
        match requirement {
            Requirement::Bytes(set) => draft.bytes.push((set, bit)),
            Requirement::Texts(texts) if draft.texts.len() + texts.len() > GROUP_TEXTS_MAX => return None,
            Requirement::Texts(texts) => {
                texts.into_iter().for_each(|text| draft.texts.entry(text).or_default().push(bit));
            }
        }
        draft.links += 1;
        Some(ScreenPlace { group: u32::try_from(group).ok()?, bit })
    }

    /// Compiles the groups. A group whose search cannot be compiled lets every link be evaluated.
    pub fn finish(self) -> Vec<ScreenGroup> {
        self.drafts.into_iter().map(GroupDraft::finish).collect()
    }
}

impl GroupDraft {
    fn finish(self) -> ScreenGroup {
        let words = (self.links as usize).div_ceil(64);
        let mut texts: Vec<(Vec<u8>, Vec<u32>)> = self.texts.into_iter().collect();
        texts.sort_unstable();
        let mut bytes = self.bytes;
        let mut builder = AhoCorasickBuilder::new();
        builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard);
        let automaton = match texts.is_empty() {
            true => None,
            false => builder.build(texts.iter().map(|(text, _)| text)).ok(),
        };
        if automaton.is_none() {
            // Every byte meets the requirement of a link without a search.
            bytes.extend(texts.iter().flat_map(|(_, owners)| owners).map(|bit| ([u64::MAX; 4], *bit)));
        }
        let owners = texts.into_iter().map(|(_, owners)| owners).collect();
        ScreenGroup { targets: self.targets, node: self.node, words, texts: automaton, owners, bytes }
    }
}

/// Returns whether a set has a bit.
pub(crate) fn has_bit(set: &[u64], bit: u32) -> bool {
    set.get((bit / 64) as usize).is_some_and(|word| word & (1 << (bit % 64)) != 0)
}

fn add_bit(set: &mut [u64], bit: u32) {
    if let Some(word) = set.get_mut((bit / 64) as usize) {
        *word |= 1 << (bit % 64);
    }
}

impl ScreenGroup {
    /// Adds the links that could match `value` to `set`, which has [`ScreenGroup::words`] words.
    pub fn look(&self, value: &[u8], set: &mut [u64]) {
        if !self.bytes.is_empty() {
            let mut present = [0; 4];
            value.iter().for_each(|byte| add_byte(&mut present, byte.to_ascii_lowercase()));
            for (wanted, bit) in &self.bytes {
                if wanted.iter().zip(&present).any(|(wanted, present)| wanted & present != 0) {
                    add_bit(set, *bit);
                }
            }
        }
        if let Some(texts) = &self.texts {
            for found in texts.find_overlapping_iter(value) {
                let owners = self.owners.get(found.pattern().as_usize());
                owners.into_iter().flatten().for_each(|bit| add_bit(set, *bit));
            }
        }
    }
}
