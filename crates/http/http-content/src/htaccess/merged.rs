//! Settings of a request: the server's rules and the files on its way, merged in Apache's order (`ap_directory_walk`,
//! `ap_file_walk`, `ap_location_walk`).

use super::files::{self, FileAnswer};
use super::walk::FolderWalk;
use htaccess::reader::Override;
use htaccess::rewrite::Rewrite;
use htaccess::settings::LinkRule;
use htaccess::{File, ServerRules, Settings};
use http_engine::Request;
use http_engine::path::{FilePath, bytes_path};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

/// `Header` directives of all files that apply to a request.
const FIELD_RULES_MAX: usize = 1_000;

/// Reason why a request has no settings.
pub enum MergeError {
    /// A file cannot be read, or a link is not followed.
    Forbidden,
    /// A file or a pattern is at fault; for the log.
    Wrong(String),
}

impl From<String> for MergeError {
    fn from(words: String) -> MergeError {
        MergeError::Wrong(words)
    }
}

/// A section or a file that applies to a request, in the order of merging.
#[derive(Clone, Copy)]
enum PlaceIndex {
    Section(usize),
    File(usize),
}

/// Settings of a request, with the rules that they come from.
pub struct MergedSettings<'a> {
    pub settings: Settings,
    rules: Option<&'a ServerRules>,
    read: Vec<(FilePath, Rc<File>)>,
    places: Vec<PlaceIndex>,
    /// Sections of files and paths that were merged, by their numbers.
    sections: Vec<usize>,
}

/// Rules that apply to a request, regardless of its file's name: two requests with equal ones have equal settings.
pub type RulesIdentity = Vec<u8>;

/// Settings that depend on the path alone: those outside of all sections and those of `<Location>`.
pub fn of_uri(rules: Option<&ServerRules>, uri: &[u8]) -> Result<Settings, String> {
    let Some(rules) = rules else { return Ok(Settings::default()) };
    let mut settings = server_level(rules);
    locations(rules, uri, &mut settings)?;
    Ok(settings)
}

/// The server's redirects precede the choice of a file, and are asked for on their own.
fn server_level(rules: &ServerRules) -> Settings {
    Settings { redirects: Vec::new(), ..rules.base.base.clone() }
}

fn locations(rules: &ServerRules, uri: &[u8], settings: &mut Settings) -> Result<(), String> {
    for location in &rules.locations {
        if location.is_of(uri)? {
            settings.merge(&location.settings);
        }
    }
    Ok(())
}

impl<'a> MergedSettings<'a> {
    /// Merges everything that applies to the file of a walk.
    pub fn of(
        r: &mut Request,
        rules: Option<&'a ServerRules>,
        walk: &FolderWalk,
    ) -> Result<MergedSettings<'a>, MergeError> {
        let settings = rules.map(server_level).unwrap_or_default();
        let mut merged = MergedSettings { settings, rules, read: Vec::new(), places: Vec::new(), sections: Vec::new() };
        merged.directories(r, walk)?;
        if let Some(rules) = rules {
            for (index, directory) in rules.directories.iter().enumerate() {
                if directory.matches(&walk.filename)? {
                    merged.settings.merge(&directory.file.base);
                    merged.places.push(PlaceIndex::Section(index));
                }
            }
        }
        merged.names(walk)?;
        if let Some(rules) = rules {
            for (index, location) in rules.locations.iter().enumerate() {
                if location.is_of(r.target.path())? {
                    merged.settings.merge(&location.settings);
                    merged.sections.push(usize::MAX - index);
                }
            }
        }
        if merged.settings.headers.len() > FIELD_RULES_MAX {
            return Err(MergeError::Wrong(format!("there are more than {FIELD_RULES_MAX} Header directives")));
        }
        Ok(merged)
    }

    /// `<Directory>` sections and .htaccess files, from the outermost directory on.
    fn directories(&mut self, r: &mut Request, walk: &FolderWalk) -> Result<(), MergeError> {
        let mut overrides = Override::All;
        for directory in walk.ancestors() {
            if directory.len() > walk.root.len() {
                follows(self.settings.links(), &directory)?;
            }
            for (index, section) in self.rules.iter().flat_map(|rules| rules.directories.iter().enumerate()) {
                if section.is_of(&directory) {
                    self.settings.merge(&section.file.base);
                    self.places.push(PlaceIndex::Section(index));
                    overrides = section.overrides.clone().unwrap_or(overrides);
                }
            }
            let Some(folder) = walk.folders.iter().find(|folder| folder[..] == directory[..]) else { continue };
            if overrides == Override::None {
                continue;
            }
            match files::read_files(r, folder) {
                FileAnswer::None => {}
                FileAnswer::File(file) => {
                    let shown = String::from_utf8_lossy(folder);
                    overrides
                        .check(&file)
                        .map_err(|e| format!("{shown}/.htaccess: {} in {shown}/.htaccess:{}", e.text, e.line))?;
                    self.settings.merge(&file.base);
                    self.places.push(PlaceIndex::File(self.read.len()));
                    self.read.push((folder.clone(), file));
                }
                FileAnswer::Forbidden => return Err(MergeError::Forbidden),
                FileAnswer::Wrong(words) => return Err(MergeError::Wrong(words)),
            }
        }
        if !walk.is_folder {
            follows(self.settings.links(), &walk.filename)?;
        }
        Ok(())
    }

    /// `<Files>` sections of the server and of all directories, in the order of merging.
    fn names(&mut self, walk: &FolderWalk) -> Result<(), String> {
        let base = self.rules.map(|rules| &rules.base);
        let mut settings = self.settings.clone();
        let mut number = 0;
        let mut sections = Vec::new();
        for file in base.into_iter().chain(self.places.iter().filter_map(|place| self.file(*place))) {
            for (scope, part) in &file.parts {
                number += 1;
                if scope.fits(walk.name())? {
                    settings.merge(part);
                    sections.push(number);
                }
            }
        }
        (self.settings, self.sections) = (settings, sections);
        Ok(())
    }

    fn file(&self, place: PlaceIndex) -> Option<&File> {
        match place {
            PlaceIndex::Section(index) => {
                self.rules.and_then(|rules| rules.directories.get(index)).map(|own| &own.file)
            }
            PlaceIndex::File(index) => self.read.get(index).map(|(_, file)| &**file),
        }
    }

    /// No section of a directory and no file applies.
    pub fn has_no_places(&self) -> bool {
        self.places.is_empty()
    }

    /// Names everything that was merged.
    pub fn identity(&self) -> RulesIdentity {
        let mut out = Vec::new();
        for place in &self.places {
            match place {
                PlaceIndex::Section(index) => out.extend_from_slice(format!("{index};").as_bytes()),
                PlaceIndex::File(index) => {
                    out.extend(
                        self.read.get(*index).map(|(folder, _)| [folder, b";".as_slice()].concat()).unwrap_or_default(),
                    );
                }
            }
        }
        self.sections.iter().for_each(|number| out.extend_from_slice(format!("{number},").as_bytes()));
        out
    }

    /// Rewriting rules of directories, outermost first: the directory with a final slash, and the rules' name for the log.
    pub fn rewrites(&self) -> Vec<(Vec<u8>, Vec<u8>, &Rewrite)> {
        let one = |place: &PlaceIndex| {
            let rewrite = self.file(*place)?.rewrite.as_ref()?;
            Some(match place {
                PlaceIndex::Section(index) => {
                    let path = self.rules.and_then(|rules| rules.directories.get(*index))?.path.clone();
                    (path.clone(), [b"<Directory ", path.as_slice(), b">"].concat(), rewrite)
                }
                PlaceIndex::File(index) => {
                    let (folder, _) = self.read.get(*index)?;
                    ([folder, b"/".as_slice()].concat(), [folder, b"/.htaccess".as_slice()].concat(), rewrite)
                }
            })
        };
        self.places.iter().filter_map(one).collect()
    }
}

/// `Options -FollowSymLinks` and `SymLinksIfOwnerMatch`, as they are in force for a name on the way.
fn follows(rule: LinkRule, path: &[u8]) -> Result<(), MergeError> {
    if rule == LinkRule::Follow {
        return Ok(());
    }
    let path = bytes_path(path);
    let Ok(link) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !link.is_symlink() {
        return Ok(());
    }
    match std::fs::metadata(path) {
        Ok(target) if rule == LinkRule::SameOwner && target.uid() == link.uid() => Ok(()),
        _ => Err(MergeError::Forbidden),
    }
}
