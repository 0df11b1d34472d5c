//! Body of the fuzz target: any text is parsed or refused; parsed rules can run.

use crate::rewrite::{PathKind, RuleEnvironment, Run};
use crate::{reader, rules};

struct EmptyEnvironment;

impl RuleEnvironment for EmptyEnvironment {
    fn variable(&mut self, name: &str) -> Vec<u8> {
        name.as_bytes().to_vec()
    }
    fn look(&mut self, path: &[u8], _: bool) -> PathKind {
        PathKind { is_file: path.len().is_multiple_of(2), ..PathKind::default() }
    }
    fn note(&mut self, _: u32, _: &dyn Fn() -> String) {}
}

/// The first line is the requested path, the rest the file.
pub fn htaccess(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (path, text) = text.split_once('\n').unwrap_or(("/x", &text));
    if let Ok(rules) = rules::read_rules(text) {
        for location in &rules.locations {
            let _ = location.is_of(path.as_bytes());
        }
        for directory in &rules.directories {
            let _ = (directory.is_of(path.as_bytes()), directory.matches(path.as_bytes()));
        }
    }
    let Ok(file) = reader::read_htaccess(text) else { return };
    let mut all = file.base.clone();
    for (_, part) in &file.parts {
        all.merge(part);
    }
    for redirect in &all.redirects {
        let _ = redirect.of(path.as_bytes());
    }
    if let Some(rewrite) = &file.rewrite {
        let rules: Vec<_> = rewrite.rules.iter().collect();
        let mut run = Run {
            directory: b"/d/",
            filename: [b"/d", path.as_bytes()].concat(),
            path_info: Vec::new(),
            uri: path.as_bytes(),
            args: b"a=b".to_vec(),
            root: b"/d",
            root_uri: b"",
            origin: "http://a".into(),
            is_subrequest: false,
            env: Vec::new(),
            media_type: None,
            vary: Vec::new(),
        };
        let _ = run.apply(&rules, rewrite.base.as_deref(), &mut EmptyEnvironment);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn mutated_files_are_read_without_panic() {
        const WORDS: &[&str] = &[
            "RewriteEngine On\n",
            "RewriteRule ",
            "RewriteCond ",
            "%{REQUEST_FILENAME} ",
            "!-f",
            "^(.*)$ ",
            "/$1",
            " [L,R=301]\n",
            "[N]\n",
            "[OR]\n",
            "<Files x>\n",
            "</Files>\n",
            "<IfModule mod_rewrite.c>\n",
            "</IfModule>\n",
            "Header set A b\n",
            "Redirect 301 / /b\n",
            "Require all denied\n",
            "\"",
            "\\",
            "\n",
            "%1",
            "${x:$1}",
            "%{",
            "[",
            "]",
            "-",
            " ",
            "ExpiresDefault access plus 1 month\n",
            "ErrorDocument 404 /x\n",
            "Order deny,allow\n",
            "[E=a:%1,QSA]\n",
        ];
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..3_000 {
            let mut text = String::from("/p/a?b\n");
            for _ in 0..24 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(WORDS[(seed >> 33) as usize % WORDS.len()]);
            }
            super::htaccess(text.as_bytes());
        }
    }
}
