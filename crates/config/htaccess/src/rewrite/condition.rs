//! Evaluation of conditions (Apache: `apply_rewrite_cond`).

use super::{PathKind, RewriteCondition, RuleEnvironment, Run, Test};
use crate::pattern::MatchGroups;

impl Run<'_> {
    pub(super) fn condition(
        &mut self,
        condition: &RewriteCondition,
        groups: &MatchGroups,
        last: &mut MatchGroups,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<bool, String> {
        let subject = self.expand(&condition.subject, groups, last, None, asks)?;
        let text = |own: &Self, value: &str, asks: &mut dyn RuleEnvironment, last: &MatchGroups| {
            own.expand(value, groups, last, None, asks)
        };
        let holds = match &condition.test {
            Test::Pattern(pattern) => match pattern.groups(&subject)? {
                Some(found) => {
                    if !condition.negated {
                        *last = found;
                    }
                    true
                }
                None => false,
            },
            Test::File(letter) => {
                let constant = is_constant(&condition.subject);
                let kind = if subject.is_empty() { PathKind::default() } else { asks.look(&subject, constant) };
                match letter {
                    'f' => kind.is_file,
                    'd' => kind.is_folder,
                    's' => kind.is_file && kind.size > 0,
                    'x' => kind.is_executable,
                    _ => kind.is_link,
                }
            }
            Test::Text(sign, value) => {
                let value = text(self, value, asks, last)?;
                let fold =
                    |bytes: &[u8]| if condition.ignore_case { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
                let order = fold(&subject).cmp(&fold(&value));
                match sign {
                    '<' => order.is_lt(),
                    '>' => order.is_gt(),
                    'l' => order.is_le(),
                    'g' => order.is_ge(),
                    _ => order.is_eq(),
                }
            }
            Test::Number(sign, value) => {
                let number = |bytes: &[u8]| -> i64 {
                    let text = String::from_utf8_lossy(bytes);
                    let text = text.trim();
                    let end = text.char_indices().find(|(at, c)| !(c.is_ascii_digit() || *at == 0 && *c == '-'));
                    text.get(..end.map_or(text.len(), |(at, _)| at)).and_then(|text| text.parse().ok()).unwrap_or(0)
                };
                let order = number(&subject).cmp(&number(&text(self, value, asks, last)?));
                match *sign {
                    "-eq" => order.is_eq(),
                    "-ne" => order.is_ne(),
                    "-lt" => order.is_lt(),
                    "-le" => order.is_le(),
                    "-gt" => order.is_gt(),
                    _ => order.is_ge(),
                }
            }
        };
        Ok(holds != condition.negated)
    }
}

/// Tells whether a text depends only on the document root.
fn is_constant(text: &str) -> bool {
    let bare = text.replace("%{DOCUMENT_ROOT}", "").replace("%{CONTEXT_DOCUMENT_ROOT}", "");
    !bare.contains(['$', '%'])
}
