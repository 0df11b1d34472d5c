//! Paths of temporary files and caches, which must not contain each other's files (nginx: `ngx_add_path`).

use conf_schema::{Cx, Directive, Problem};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Paths that directives have named so far. In [`Cx`].
#[derive(Default)]
pub struct UsedPaths(HashMap<PathBuf, UsedPath>);

struct UsedPath {
    /// Levels of subfolders; `None`: a cache's.
    levels: Option<Vec<usize>>,
    /// File and line of the directive.
    place: String,
}

impl UsedPaths {
    /// Adds a directive's folder. `levels`: those of temporary files, which several directives may share; `None`: a
    /// cache's, which is its own.
    pub fn add(cx: &mut Cx, d: &Directive, path: &Path, levels: Option<&[usize]>) -> Result<(), Problem> {
        // Skips defaults, which have no line.
        if d.span.file.0 == u32::MAX {
            return Ok(());
        }
        // Strips a slash at the end.
        let path: PathBuf = path.components().collect();
        let place = cx.place_of(conf_schema::At { span: d.span, line: d.line });
        let used = cx.get::<UsedPaths>();
        let Some(known) = used.0.get(&path) else {
            used.0.insert(path, UsedPath { levels: levels.map(Vec::from), place });
            return Ok(());
        };
        let (name, earlier) = (path.display(), &known.place);
        match (&known.levels, levels) {
            (Some(known), Some(levels)) if known.as_slice() == levels => Ok(()),
            (Some(_), Some(_)) => {
                Err(Problem::says(format!("the same path name \"{name}\" in {earlier} has the different levels than")))
            }
            _ => Err(Problem::says(format!("the same path name \"{name}\" used in {earlier} and"))),
        }
    }
}
