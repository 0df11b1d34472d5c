//! The text of a configuration apart from the servers of its groups: endpoints change often, and the rest of the text does not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::groups::{GroupArea, GroupId, GroupServer, server_line};
use crate::{RenderedConfig, Settings};

/// Text of a configuration without the servers of groups, and the places of these servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigText {
    skeleton: String,
    /// Offsets in the skeleton, in order, with the group whose servers belong there.
    places: Vec<(usize, GroupId)>,
}

impl ConfigText {
    /// Splits the text of a configuration.
    pub fn new(config: &RenderedConfig) -> ConfigText {
        let known: BTreeMap<(GroupArea, &str), &GroupId> =
            config.groups.keys().map(|id| ((id.area, id.name.as_str()), id)).collect();
        let mut places = Vec::with_capacity(known.len());
        let skeleton = split(&config.main, |offset, area, name| match known.get(&(area, name)) {
            Some(id) => {
                places.push((offset, (*id).clone()));
                true
            }
            None => false,
        });
        ConfigText { skeleton, places }
    }

    /// Removes the servers of these groups from another text that [`crate::render`] has made, here or in a process before this one. Groups
    /// that this text does not have keep theirs: of them, the API knows nothing.
    pub fn remove_servers(&self, text: &str) -> String {
        let known: BTreeSet<(GroupArea, &str)> =
            self.places.iter().map(|(_, id)| (id.area, id.name.as_str())).collect();
        split(text, |_, area, name| known.contains(&(area, name)))
    }

    /// Returns the groups of this text that another text of [`crate::render`] has, too.
    pub fn common_groups(&self, text: &str) -> BTreeSet<GroupId> {
        let known: BTreeMap<(GroupArea, &str), &GroupId> =
            self.places.iter().map(|(_, id)| ((id.area, id.name.as_str()), id)).collect();
        let mut common = BTreeSet::new();
        split(text, |_, area, name| {
            common.extend(known.get(&(area, name)).map(|id| (*id).clone()));
            false
        });
        common
    }

    /// Returns the text without servers.
    pub fn skeleton(&self) -> &str {
        &self.skeleton
    }

    /// Adds a line behind the text.
    pub fn push_line(&mut self, line: &str) {
        self.skeleton.push_str(line);
        self.skeleton.push('\n');
    }

    /// Returns the whole text with these servers of its groups: for those of the split configuration, its text again. A group that is missing
    /// has no servers.
    pub fn with_servers<S: Deref<Target = [GroupServer]>>(
        &self,
        groups: &BTreeMap<GroupId, S>,
        settings: &Settings,
    ) -> String {
        let mut text = String::with_capacity(self.skeleton.len() + 64 * self.places.len());
        let mut at = 0;
        for (offset, id) in &self.places {
            text.push_str(self.skeleton.get(at..*offset).unwrap_or_default());
            at = *offset;
            for server in groups.get(id).into_iter().flat_map(|servers| servers.iter()) {
                text.push_str(&server_line(server, settings));
            }
        }
        text.push_str(self.skeleton.get(at..).unwrap_or_default());
        text
    }
}

/// Returns the text without the servers of some groups. Calls `is_removed` for each group at its first server, with its offset in the
/// returned text, its area and its name.
fn split(text: &str, mut is_removed: impl FnMut(usize, GroupArea, &str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut area = None;
    let mut group = None;
    // `true` if the servers of the group go; unknown before its first one.
    let mut goes = None;
    for line in text.split_inclusive('\n') {
        let words = line.trim_start();
        match line.len() - words.len() {
            0 if words.starts_with("http ") => area = Some(GroupArea::Http),
            0 if words.starts_with("stream ") => area = Some(GroupArea::Stream),
            // Areas are the first level, groups the second one.
            4 => {
                let name = words.strip_prefix("upstream ").and_then(|rest| rest.trim_end().strip_suffix(" {"));
                group = area.zip(name);
                goes = None;
            }
            8 if words.starts_with("server ") => {
                if let Some((area, name)) = group
                    && *goes.get_or_insert_with(|| is_removed(out.len(), area, name))
                {
                    continue;
                }
            }
            _ => {}
        }
        out.push_str(line);
    }
    out
}
