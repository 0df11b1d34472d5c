//! Apache's rules: random .htaccess files and virtual hosts, for a real Apache, for Tidegate with the result of `convert apache`, and
//! for Tidegate with `htaccess on`. An answer that is open where Apache's is closed fails the run; of all others, most must be equal.

mod pool;
mod servers;

use crate::backend::Backend;
use crate::{Dice, Plan};
use servers::{ApacheTranslation, RunningServer, SeenAnswer};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Equal answers, in thousandths, below which a run fails.
const EQUAL_MIN: usize = 990;

/// Parts that a seed draws.
#[derive(Clone, Debug)]
struct DrawnCase {
    /// Parts of a virtual host; `None`: a plain one, so that `htaccess on` can be compared, too.
    host: Option<Vec<&'static str>>,
    /// Parts of the .htaccess files of [`pool::FOLDERS`].
    files: Vec<Vec<&'static str>>,
}

impl DrawnCase {
    fn of(dice: &mut Dice) -> DrawnCase {
        let mut pick = |pool: &[&'static str], most: usize| -> Vec<&'static str> {
            (0..dice.below(most + 1)).map(|_| pool[dice.below(pool.len())]).collect()
        };
        let host = pick(pool::HOSTS, 5);
        let files = pool::FOLDERS.iter().enumerate().map(|(at, _)| pick(pool::FILES, if at == 0 { 4 } else { 2 }));
        DrawnCase { files: files.collect(), host: (!host.is_empty()).then_some(host) }
    }
    fn count(&self) -> usize {
        self.host.as_ref().map_or(0, Vec::len) + self.files.iter().map(Vec::len).sum::<usize>()
    }
    /// Leaves out one part.
    fn without(&self, index: usize) -> DrawnCase {
        let mut fewer = self.clone();
        let mut at = index;
        let lists = fewer.host.iter_mut().chain(fewer.files.iter_mut());
        for list in lists {
            if at < list.len() {
                list.remove(at);
                break;
            }
            at -= list.len();
        }
        fewer
    }
    fn shown(&self) -> String {
        let mut out = String::new();
        for part in self.host.iter().flatten() {
            out += &format!("  virtual host: {}\n", part.replace('\n', "\n                "));
        }
        for (folder, parts) in pool::FOLDERS.iter().zip(&self.files) {
            for part in parts {
                out += &format!("  {folder}/.htaccess: {}\n", part.replace('\n', "\n                "));
            }
        }
        out
    }
    fn host_text(&self, dir: &Path) -> String {
        let shown = dir.display();
        let mut text = format!(
            "ServerName localhost\nDocumentRoot {shown}/html\n<Directory {shown}/html>\nAllowOverride All\nRequire all granted\n</Directory>\n\
             DirectoryIndex index.html index.php\n"
        );
        for part in self.host.iter().flatten() {
            text += &filled(part, dir);
            text.push('\n');
        }
        text
    }
    fn folders(&self, dir: &Path) -> Vec<(&'static str, String)> {
        let text = |parts: &Vec<&str>| parts.iter().map(|part| filled(part, dir) + "\n").collect::<String>();
        let all = pool::FOLDERS.iter().zip(&self.files).filter(|(_, parts)| !parts.is_empty());
        all.map(|(folder, parts)| (*folder, text(parts))).collect()
    }
}

fn filled(part: &str, dir: &Path) -> String {
    let shown = dir.display().to_string();
    part.replace("@root", &format!("{shown}/html")).replace("@dir", &shown)
}

/// A server of ours that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Convert,
    Htaccess,
}

/// A difference between two answers.
struct Difference {
    way: Way,
    request: &'static str,
    theirs: SeenAnswer,
    ours: SeenAnswer,
}

impl Difference {
    /// Ours answers a request that Apache refuses, or sends a script's text.
    fn is_open(&self) -> bool {
        let refused = (400..600).contains(&self.theirs.status);
        refused && (200..300).contains(&self.ours.status) || self.ours.body.contains("#!/bin/sh")
    }
    /// Statuses, or parts that differ, for the summary.
    fn class(&self) -> String {
        if self.is_open() {
            return format!("OPEN: {} where Apache says {}", self.ours.status, self.theirs.status);
        }
        if self.theirs.status != self.ours.status {
            return format!("status {} where Apache says {}", self.ours.status, self.theirs.status);
        }
        match (self.theirs.location == self.ours.location, self.theirs.fields == self.ours.fields) {
            (false, _) => "another Location".into(),
            (_, false) => "other fields".into(),
            _ => "another body".into(),
        }
    }
}

/// Counts of a run.
#[derive(Default)]
struct Tally {
    answers: usize,
    /// Configurations that Apache refuses.
    refused: usize,
    /// Configurations without a translation.
    untranslated: usize,
    classes: BTreeMap<String, usize>,
    open: usize,
    differing: usize,
}

/// The servers of a run.
struct Peers<'a> {
    plan: &'a Plan,
    apache: &'a Path,
    backend: u16,
    dir: PathBuf,
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Answers that are open, too many that differ, or a failure of the run.
pub fn compare_apache(plan: &Plan, apache: &Path) -> Result<String, String> {
    let backend = Backend::start().map_err(|e| format!("the server behind: {e}"))?;
    let dir = std::env::temp_dir().join(format!("compare-apache-{}", std::process::id()));
    let peers = Peers { plan, apache, backend: backend.port, dir };
    let (mut tally, mut shown) = (Tally::default(), Vec::new());
    for index in 0..plan.count {
        let seed = plan.seed.wrapping_add(index);
        let drawn = DrawnCase::of(&mut Dice::new(seed));
        let found = peers.compare(&drawn, &mut tally, pool::REQUESTS).map_err(|e| format!("seed {seed}: {e}"))?;
        let mut seen = Vec::new();
        for difference in found {
            let class = difference.class();
            *tally.classes.entry(class.clone()).or_default() += 1;
            tally.differing += 1;
            tally.open += usize::from(difference.is_open());
            // One of each class and way.
            if shown.len() < plan.differences_max && !seen.contains(&(difference.way, class.clone())) {
                seen.push((difference.way, class));
                shown.push(format!("seed {seed}:\n{}", peers.reduce(drawn.clone(), difference)?));
            }
        }
    }
    let _ = fs::remove_dir_all(&peers.dir);
    tally.result(plan.count, &shown)
}

impl Tally {
    fn result(&self, count: u64, shown: &[String]) -> Result<String, String> {
        let equal = self.answers - self.differing;
        let share = (equal * 1000).checked_div(self.answers).unwrap_or(0);
        let mut summary = format!(
            "{count} configurations ({} refused by Apache, {} not translated), {} answers, {}.{} % equal, {} open where Apache is closed\n",
            self.refused,
            self.untranslated,
            self.answers,
            share / 10,
            share % 10,
            self.open
        );
        for (class, number) in &self.classes {
            summary += &format!("  {number:>6}  {class}\n");
        }
        if self.open == 0 && share >= EQUAL_MIN {
            return Ok(format!("{summary}\n{}", shown.join("\n")));
        }
        Err(format!("{summary}\n{}", shown.join("\n")))
    }
}

impl Peers<'_> {
    /// Compares the answers of all servers to requests.
    fn compare(
        &self,
        drawn: &DrawnCase,
        tally: &mut Tally,
        requests: &[&'static str],
    ) -> Result<Vec<Difference>, String> {
        let folders = drawn.folders(&self.dir);
        servers::lay_out(&self.dir, &folders)?;
        let host = drawn.host_text(&self.dir);
        let Some(theirs) = servers::start_apache(self.apache, &self.dir, &host)? else {
            tally.refused += 1;
            return Ok(Vec::new());
        };
        let answers = all(&theirs, requests)?;
        drop(theirs);
        let mut differences = Vec::new();
        for way in [Way::Convert, Way::Htaccess] {
            if way == Way::Htaccess && drawn.host.is_some() {
                continue;
            }
            let conf = match way {
                Way::Htaccess => self.plain(),
                Way::Convert => match self.converted(&host, &folders)? {
                    ApacheTranslation::Made(conf) => conf,
                    ApacheTranslation::Refused => {
                        tally.untranslated += 1;
                        continue;
                    }
                },
            };
            let ours = servers::start_tidegate(&self.plan.ours.path, &self.dir, &conf, self.backend)?;
            tally.answers += requests.len();
            for ((request, theirs), ours) in requests.iter().zip(&answers).zip(all(&ours, requests)?) {
                if *theirs != ours {
                    differences.push(Difference { way, request, theirs: theirs.clone(), ours });
                }
            }
        }
        Ok(differences)
    }

    fn converted(&self, host: &str, folders: &[(&str, String)]) -> Result<ApacheTranslation, String> {
        let site = self.dir.join("conf/site.conf");
        fs::write(&site, format!("<VirtualHost 127.0.0.1:1>\n{host}</VirtualHost>\n")).map_err(|e| e.to_string())?;
        let mut files = vec![site];
        files.extend(folders.iter().map(|(folder, _)| self.dir.join(folder).join(".htaccess")));
        Ok(match servers::translate_files(&self.plan.ours.path, &files)? {
            ApacheTranslation::Made(conf) => {
                let start = conf.find("    types {").and_then(|at| conf.get(at..)).map(|rest| rest.len());
                let types = start
                    .and_then(|length| conf.get(conf.len() - length..))
                    .and_then(|rest| rest.split_once("\n    }\n"));
                let rest = types.map_or(conf.as_str(), |(_, rest)| rest);
                ApacheTranslation::Made(format!(
                    "daemon off; events {{ }}\nhttp {{\n{TYPES}{}",
                    rest.replace("listen 127.0.0.1:1;", "listen 127.0.0.1:@port;").replace(
                        "fastcgi_pass unix:/run/php/php-fpm.sock;",
                        "fastcgi_pass 127.0.0.1:@scripts; fastcgi_param COMPARE_SCRIPT 1;"
                    )
                ))
            }
            refused => refused,
        })
    }

    /// `htaccess on` as docs/apache.md shows it.
    fn plain(&self) -> String {
        format!(
            "daemon off; events {{ }}\nhttp {{\n{TYPES}server {{ listen 127.0.0.1:@port; server_name localhost; root {}/html;\n\
             index index.html index.php; htaccess on; autoindex on; htaccess_rules 'Options FollowSymLinks';\n\
             location ~ [^/]\\.php(/|$) {{ fastcgi_split_path_info ^(.+?\\.php)(/.*)?$; set $info $fastcgi_path_info;\n\
             try_files $fastcgi_script_name =404; fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param PATH_INFO $info;\n\
             fastcgi_param QUERY_STRING $args; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param COMPARE_SCRIPT 1;\n\
             fastcgi_pass 127.0.0.1:@scripts; }} }} }}\n",
            self.dir.display()
        )
    }

    /// Leaves out parts that do not contribute to a difference.
    fn reduce(&self, mut drawn: DrawnCase, mut difference: Difference) -> Result<String, String> {
        let request = [difference.request];
        let mut at = 0;
        while at < drawn.count() {
            let fewer = drawn.without(at);
            let found = self.compare(&fewer, &mut Tally::default(), &request)?;
            match found.into_iter().find(|one| one.way == difference.way && one.class() == difference.class()) {
                Some(same) => (drawn, difference) = (fewer, same),
                None => at += 1,
            }
        }
        Ok(format!(
            "{}  {:?}: {}: {}\n    apache {:?}\n    ours   {:?}",
            drawn.shown(),
            difference.way,
            difference.request,
            difference.class(),
            difference.theirs,
            difference.ours
        ))
    }
}

/// Types of both servers.
const TYPES: &str =
    "types { text/html html; text/css css; text/plain txt; application/x-bak bak; } default_type \"\";\n";

fn all(server: &RunningServer, requests: &[&'static str]) -> Result<Vec<SeenAnswer>, String> {
    requests.iter().map(|request| servers::ask_server(server.port, request)).collect()
}
